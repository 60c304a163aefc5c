/* SPDX-License-Identifier: Apache-2.0 */
#include "base/libc_symbols.h"

#include "base/log.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The tables of a loaded object. */
struct object {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash, *sysv_hash;
};

struct search {
    const char *name;
    void *found;
};

/* d_ptr is an address after relocation by ld.so on x86-64 and arm64; an offset where the kernel made the
 * object. */
static const void *pointer(ElfW(Addr) base, ElfW(Addr) value) {
    return (const void *)(value < base ? base + value : value);
}

static bool read_tables(const struct dl_phdr_info *info, struct object *object) {
    *object = (struct object){.base = info->dlpi_addr};
    for (size_t index = 0; index < info->dlpi_phnum; index++) {
        if (info->dlpi_phdr[index].p_type != PT_DYNAMIC) continue;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[index].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            const void *address = pointer(info->dlpi_addr, entry->d_un.d_ptr);
            if (entry->d_tag == DT_SYMTAB) object->symbols = address;
            if (entry->d_tag == DT_STRTAB) object->strings = address;
            if (entry->d_tag == DT_GNU_HASH) object->gnu_hash = address;
            if (entry->d_tag == DT_HASH) object->sysv_hash = address;
        }
    }
    return object->symbols && object->strings && (object->gnu_hash || object->sysv_hash);
}

static bool defines(const struct object *object, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &object->symbols[index];
    return symbol->st_shndx != SHN_UNDEF && (symbol->st_info & 0xf) == STT_FUNC &&
           strcmp(object->strings + symbol->st_name, name) == 0;
}

/* Any version of the symbol will do: all that glibc has of dlsym and dlvsym are the same function. */
static uint32_t find_gnu(const struct object *object, const char *name) {
    const uint32_t *header = object->gnu_hash; /* buckets, first symbol, filter words, shift */
    const uint32_t *buckets = header + 4 + header[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + header[0];
    uint32_t hash = 5381;
    for (const char *next = name; *next; next++) hash = hash * 33 + (unsigned char)*next;
    for (uint32_t index = buckets[hash % header[0]]; index >= header[1] && index != 0; index++) {
        uint32_t entry = chain[index - header[1]];
        if ((entry | 1) == (hash | 1) && defines(object, index, name)) return index;
        if (entry & 1) break;
    }
    return 0;
}

static uint32_t find_sysv(const struct object *object, const char *name) {
    for (uint32_t index = 1; index < object->sysv_hash[1]; index++)
        if (defines(object, index, name)) return index;
    return 0;
}

/* libc.so.6 since glibc 2.34, libdl.so.2 before. */
static int visit(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct search *search = argument;
    struct object object;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    const char *file = slash ? slash + 1 : info->dlpi_name ? info->dlpi_name : "";
    if (strcmp(file, "libc.so.6") != 0 && strcmp(file, "libdl.so.2") != 0) return 0;
    if (!read_tables(info, &object)) return 0;
    uint32_t index = object.gnu_hash ? find_gnu(&object, search->name) : find_sysv(&object, search->name);
    if (index == 0) return 0;
    search->found = (void *)(object.base + object.symbols[index].st_value);
    return 1;
}

static void *libc_find(const char *name) {
    struct search search = {.name = name};
    dl_iterate_phdr(visit, &search);
    if (!search.found) {
        log_refusal("this C library has no %s: convgpu works with glibc only.", name);
        abort();
    }
    return search.found;
}

/* Threads that come at once find the same. */
dlsym_function *libc_dlsym(void) {
    static _Atomic(dlsym_function *) cached;
    dlsym_function *function = atomic_load_explicit(&cached, memory_order_acquire);
    if (!function) {
        function = (dlsym_function *)libc_find("dlsym");
        atomic_store_explicit(&cached, function, memory_order_release);
    }
    return function;
}

dlvsym_function *libc_dlvsym(void) {
    static _Atomic(dlvsym_function *) cached;
    dlvsym_function *function = atomic_load_explicit(&cached, memory_order_acquire);
    if (!function) {
        function = (dlvsym_function *)libc_find("dlvsym");
        atomic_store_explicit(&cached, function, memory_order_release);
    }
    return function;
}
