/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit test of hook/src/visibility/visible_list.c: what the driver is told, for each list of the program's
 * own.
 */
#include "visibility/visible_list.h"

#include <stdio.h>
#include <string.h>

#define A "GPU-aaaa0000-0000-0000-0000-000000000001"
#define B "GPU-aaaa0000-0000-0000-0000-000000000002"
#define C "GPU-cccc0000-0000-0000-0000-000000000003"

static const struct {
    const char *asked, *text, *unknown;
} cases[] = {
    {NULL, C "," A "," B, NULL},
    {"0", C, NULL},
    {"2,0", B "," C, NULL},
    {" 1, 2", A "," B, NULL},
    {"0,0", C "," C, NULL}, /* the driver has an error for it */
    {"1,3,0", A, "3,0"},
    {"-1", "", "-1"},
    {"3", "", "3"},
    {"", "", NULL},
    {"NoDevFiles", "", "NoDevFiles"},
    {"0,", C, NULL},
    {",0", "", ",0"},
    {A, A, NULL},
    {"GPU-AAAA0000-0000-0000-0000-000000000002", B, NULL},
    {"GPU-c", C, NULL},
    {"GPU-c,GPU-aaaa0000-0000-0000-0000-000000000001", C "," A, NULL},
    {"GPU-aaaa", "", "GPU-aaaa"}, /* of two */
    {"GPU-", "", "GPU-"},
    {"GPU-dddd", "", "GPU-dddd"},
    {A ",GPU-dddd," B, A, "GPU-dddd," B},
    {A ",0", A, "0"},
    {"0," A, C, A},
};

static int check(const char *asked, const char *text, const char *unknown,
                 const struct account_chosen *chosen) {
    struct visible_list list;
    bool made = visible_list_make(asked, chosen, &list);
    uint32_t count = 0;
    for (const char *next = text; (next = strstr(next, "GPU-")); next++) count++;
    bool same = !unknown == !list.unknown && (!unknown || strcmp(unknown, list.unknown) == 0);
    if (made && same && strcmp(list.text, text) == 0 && list.count == count) return 0;
    printf("%s: %d \"%s\" (%u), ends at %s\n", asked, made, list.text, list.count, list.unknown);
    return 1;
}

int main(void) {
    static struct account_chosen chosen = {.count = 3}, most = {.count = CONVGPU_MAX_DEVICES};
    static const char *const uuids[] = {C, A, B};
    struct visible_list list;
    int wrong = 0;
    for (int row = 0; row < 3; row++) wrong += !uuid_parse(uuids[row], chosen.uuid[row]);
    for (unsigned index = 0; index < sizeof cases / sizeof cases[0]; index++)
        wrong += check(cases[index].asked, cases[index].text, cases[index].unknown, &chosen);
    wrong += visible_list_make("MIG-aaaa0000-0000-0000-0000-000000000001", &chosen, &list);
    visible_list_make(NULL, &most, &list);
    wrong += list.count != CONVGPU_MAX_DEVICES || strlen(list.text) + 1 >= sizeof list.text;
    char many[4096] = "";
    for (int entry = 0; entry < 100; entry++) strcat(many, "0,");
    visible_list_make(many, &chosen, &list);
    wrong += list.count != CONVGPU_MAX_DEVICES;
    return wrong > 0;
}
