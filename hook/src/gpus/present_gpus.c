/* SPDX-License-Identifier: Apache-2.0 */
#include "gpus/present_gpus.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LISTING_SIZE = 4096, INFORMATION_SIZE = 2048 };

/* The kernel's own layout of a directory entry (getdents64(2)): readdir() would allocate. */
struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

static bool read_file(const char *path, char *text, size_t room) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = descriptor < 0 ? -1 : read(descriptor, text, room - 1);
    if (descriptor >= 0) close(descriptor);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* What stands behind "NAME:" and blanks; NULL. */
static const char *find_value(const char *text, const char *name) {
    const char *line = strstr(text, name);
    return line ? line + strlen(name) + strspn(line + strlen(name), " \t") : NULL;
}

/* 1: the card's UUID was written; 0: its device file is not here; -1: not known. */
static int read_card(const char *cards, const char *files, const char *name, uint8_t *uuid) {
    char path[PATH_MAX], text[INFORMATION_SIZE];
    if (snprintf(path, sizeof path, "%s/%s/information", cards, name) >= (int)sizeof path) return -1;
    if (!read_file(path, text, sizeof text)) return -1;
    const char *minor = find_value(text, "Device Minor:"), *value = find_value(text, "GPU UUID:");
    if (!minor || !value) return -1;
    if (snprintf(path, sizeof path, "%s/nvidia%ld", files, strtol(minor, NULL, 10)) >= (int)sizeof path)
        return -1;
    if (access(path, F_OK) != 0) return 0;   /* stat() is a symbol of glibc 2.33 */
    return uuid_parse(value, uuid) ? 1 : -1; /* "GPU-????????-...": nobody has opened the card yet */
}

/* Reads the cards of one part of the listing; -1: not known. */
static int read_cards(const char *cards, const char *files, const char *listing, long size,
                      uint8_t (*uuid)[UUID_BYTES], uint32_t room) {
    int found = 0;
    const struct entry *entry;
    for (long at = 0; at < size; at += entry->size) {
        entry = (const struct entry *)(listing + at);
        if (entry->name[0] == '.') continue;
        if ((uint32_t)found == room) return -1;
        int here = read_card(cards, files, entry->name, uuid[found]);
        if (here < 0) return -1;
        found += here;
    }
    return found;
}

uint32_t present_gpus(const char *cards, const char *files, uint8_t (*uuid)[UUID_BYTES], uint32_t room) {
    _Alignas(struct entry) char listing[LISTING_SIZE];
    int directory = open(cards, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return 0;
    uint32_t count = 0;
    long size;
    while ((size = syscall(SYS_getdents64, directory, listing, sizeof listing)) > 0) {
        int found = read_cards(cards, files, listing, size, uuid + count, room - count);
        if (found < 0) size = -1;
        if (found < 0) break;
        count += (uint32_t)found;
    }
    close(directory);
    return size == 0 ? count : 0;
}
