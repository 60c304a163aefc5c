/* SPDX-License-Identifier: Apache-2.0
 *
 * Images. One of ours is text: `variables=BYTES code=BYTES lasts_us=N local=BYTES heap=1 printf=1
 * parameters=BYTES`, of which any part may lack; it stands for compressed images, of which nobody but the
 * driver knows what they take. What names a function of the driver's calls it. A cubin is an ELF file as the
 * driver's, of which only the variables and such names count; so is that of a fat binary, behind its first
 * header.
 */
#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcuda/module/module.h"

#define FAT      0xba55ed50u
#define WRAPPER  0x466243b1u
#define KIND_ELF 2

static const struct {
    const char *text;
    unsigned calls;
} names[] = {
    {"vprintf", CALLS_PRINT}, {"__assertfail", CALLS_ASSERT}, {"malloc", CALLS_HEAP}, {"free", CALLS_HEAP}};
#define LAUNCH "__cuda_syscall_cnp"

static unsigned calls_named(const char *name, size_t length) {
    unsigned calls = memmem(name, length, LAUNCH, strlen(LAUNCH)) != NULL ? CALLS_LAUNCH : 0;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].text) == length && memcmp(name, names[i].text, length) == 0)
            calls |= names[i].calls;
    return calls;
}

/* Each string of a table is a name. */
static unsigned calls_of_table(const char *table, size_t size) {
    unsigned calls = 0;
    for (size_t at = 0; at < size;) {
        size_t length = strnlen(table + at, size - at);
        calls |= calls_named(table + at, length);
        at += length + 1;
    }
    return calls;
}

/* Each word of a text. */
static unsigned calls_of_text(const char *text) {
    unsigned calls = 0;
    while (*text != '\0') {
        size_t length = 0;
        while (isalnum((unsigned char)text[length]) || (text[length] != '\0' && strchr("_$%", text[length])))
            length++;
        calls |= calls_named(text, length);
        text += length > 0 ? length : 1;
    }
    return calls;
}

static uint64_t number(const char *text, const char *key) {
    const char *found = strstr(text, key);
    return found == NULL ? 0 : strtoull(found + strlen(key), NULL, 10);
}

static void read_cubin(const char *image, struct image *facts) {
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
    const char *names = image + sections[header->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < header->e_shnum; i++) {
        const char *name = names + sections[i].sh_name;
        if (strncmp(name, ".nv.global", 10) == 0) facts->variables += sections[i].sh_size;
        if (sections[i].sh_type == SHT_STRTAB)
            facts->calls |= calls_of_table(image + sections[i].sh_offset, sections[i].sh_size);
    }
}

/* The first cubin, whatever it is for. */
static const char *find_cubin(const char *image) {
    const char *end = image + 16 + *(const uint64_t *)(image + 8);
    for (const char *entry = image + *(const uint16_t *)(image + 6); entry < end;) {
        const char *content = entry + *(const uint32_t *)(entry + 4);
        if (*(const uint16_t *)entry == KIND_ELF) return content;
        entry = content + *(const uint64_t *)(entry + 8);
    }
    return NULL;
}

void image_read(const void *image, struct image *facts) {
    const char *text = image;
    uint32_t magic = 0;
    memcpy(&magic, text, strnlen(text, sizeof magic));
    if (magic == WRAPPER) {
        text = *(const char *const *)(text + 8);
        memcpy(&magic, text, sizeof magic);
    }
    if (magic == FAT) text = find_cubin(text);
    if (text != NULL && memcmp(text, ELFMAG, 1) == 0) {
        read_cubin(text, facts);
    } else if (text != NULL && magic != FAT) {
        *facts = (struct image){number(text, "variables="),  number(text, "code="), number(text, "lasts_us="),
                                number(text, "local="),      number(text, "heap="), number(text, "printf="),
                                number(text, "parameters="), calls_of_text(text)};
    }
}
