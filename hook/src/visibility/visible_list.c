/* SPDX-License-Identifier: Apache-2.0 */
#include "visibility/visible_list.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char prefix[] = "GPU-";
enum { PREFIX_LENGTH = sizeof prefix - 1 };

/* The position of the one device whose UUID begins so, or -1. */
static int find_by_uuid(const struct account_chosen *chosen, const char *entry, size_t length) {
    int found = -1;
    for (uint32_t position = 0; position < chosen->count; position++) {
        char text[UUID_TEXT_SIZE];
        uuid_to_text(chosen->uuid[position], text);
        if (length <= PREFIX_LENGTH || strncasecmp(entry, text, length) != 0) continue;
        if (found >= 0) return -1; /* ambiguous */
        found = (int)position;
    }
    return found;
}

static int find_by_number(const struct account_chosen *chosen, const char *entry) {
    char *end;
    long number = strtol(entry, &end, 10);
    return end != entry && number >= 0 && number < (long)chosen->count ? (int)number : -1;
}

static void append(struct visible_list *list, size_t *length, const uint8_t *uuid) {
    if (*length > 0) list->text[(*length)++] = ',';
    uuid_to_text(uuid, list->text + *length);
    *length += UUID_TEXT_SIZE - 1;
    list->count++;
}

/* A device that is named twice is written twice, for the driver's own error. More entries than there are
 * devices name one twice, so nothing is lost where the list is full. */
bool visible_list_make(const char *asked, const struct account_chosen *chosen, struct visible_list *list) {
    size_t length = 0;
    list->count = 0;
    list->unknown = NULL;
    list->text[0] = '\0';
    if (asked && strncmp(asked, "MIG-", strlen("MIG-")) == 0) return false;
    for (uint32_t position = 0; !asked && position < chosen->count; position++)
        append(list, &length, chosen->uuid[position]);
    bool uuids = asked && strncmp(asked, prefix, PREFIX_LENGTH) == 0;
    while (asked && *asked && list->count < CONVGPU_MAX_DEVICES) {
        size_t entry = strcspn(asked, ",");
        int position = uuids ? find_by_uuid(chosen, asked, entry) : find_by_number(chosen, asked);
        if (position < 0) list->unknown = asked;
        if (position < 0) break;
        append(list, &length, chosen->uuid[position]);
        asked += entry + (asked[entry] == ',');
    }
    return true;
}
