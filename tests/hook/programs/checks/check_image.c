/* SPDX-License-Identifier: Apache-2.0
 *
 * What is read from images: fat binaries with and without a device of 9.0, names without end, and which names
 * are those of the driver's code.
 */
#include "images/driver_calls.h"
#include "images/image.h"
#include "tables/driver.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

struct driver driver;
_Thread_local int inside_driver;

struct cubin {
    Elf64_Ehdr header;
    Elf64_Shdr sections[2];
    char names[64];
};

struct entry {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t size;
    uint32_t compressed, options, versions, architecture;
    struct cubin cubin;
};

struct fat {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
    struct entry entries[2];
};

static CUresult get_device(CUdevice *device) {
    return *device = 0, CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, int attribute, CUdevice device) {
    return (void)device, *value = attribute == 75 ? 9 : 0, CUDA_SUCCESS;
}

static struct entry entry_of(uint32_t architecture, bool calls) {
    struct entry entry = {.kind = 2,
                          .header_size = offsetof(struct entry, cubin),
                          .size = sizeof entry.cubin,
                          .architecture = architecture};
    struct cubin *cubin = &entry.cubin;
    memcpy(cubin->header.e_ident, ELFMAG, SELFMAG);
    cubin->header.e_ident[EI_CLASS] = ELFCLASS64;
    cubin->header.e_shoff = offsetof(struct cubin, sections);
    cubin->header.e_shentsize = sizeof cubin->sections[0];
    cubin->header.e_shnum = 2;
    cubin->header.e_shstrndx = 1;
    cubin->sections[1] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(struct cubin, names), .sh_size = sizeof cubin->names};
    if (calls) strcpy(cubin->names + 1, "__cuda_syscall_cnpv2LaunchDeviceV2");
    return entry;
}

static int check(const char *what, struct entry first, struct entry second, unsigned expected) {
    struct fat fat = {0xba55ed50, 1, offsetof(struct fat, entries), sizeof fat.entries, {first, second}};
    unsigned calls = image_needs(&fat).calls;
    if (calls == expected) return 0;
    printf("%s: %u, not %u\n", what, calls, expected);
    return 1;
}

enum { PAGE = 4096, NAMES = 3 * PAGE };

/* Reads a cubin among whose names stand these at `at`, after a NUL and before one where there is room. */
static int check_names(const char *what, const char *name, size_t length, size_t at, unsigned expected) {
    static struct {
        struct cubin cubin;
        char names[NAMES];
    } image;
    image.cubin = entry_of(90, false).cubin;
    image.cubin.sections[1].sh_offset = (size_t)(image.names - (char *)&image);
    image.cubin.sections[1].sh_size = NAMES;
    memset(image.names, 'x', NAMES);
    if (at > 0) image.names[at - 1] = '\0';
    memcpy(image.names + at, name, length);
    if (at + length < NAMES) image.names[at + length] = '\0';
    unsigned calls = image_needs(&image).calls;
    if (calls == expected) return 0;
    printf("%s at %zu: %u, not %u\n", what, at, calls, expected);
    return 1;
}

/* Each name at each place around the end of a page, and at the begin and the end of the table. */
static int check_places(void) {
    static const struct {
        const char *name;
        unsigned calls;
    } names[] = {{"vprintf", CALLS_PRINT},
                 {"__assertfail", CALLS_ASSERT},
                 {"malloc", CALLS_HEAP},
                 {"free", CALLS_HEAP},
                 {"__cuda_syscall_cnpv2GetParameterBufferV2", CALLS_LAUNCH},
                 {"my_malloc", CALLS_HEAP},
                 {"mallocator", 0},
                 {"vprintf2", 0},
                 {"_free", CALLS_HEAP},
                 {"__assertfail_", 0}};
    int wrong = 0;
    for (size_t row = 0; row < sizeof names / sizeof names[0]; row++) {
        const char *name = names[row].name;
        size_t length = strlen(name);
        for (size_t at = PAGE - 60; at < PAGE + 4; at++)
            wrong += check_names(name, name, length, at, names[row].calls);
        wrong += check_names(name, name, length, 0, names[row].calls);
        wrong += check_names(name, name, length, NAMES - length - 1, names[row].calls);
    }
    wrong += check_names("without an end", "malloc", 6, NAMES - 6, 0);
    return wrong + check_names("two", "free\0vprintf", 12, PAGE - 8, CALLS_HEAP | CALLS_PRINT);
}

static int check_ptx(const char *text, unsigned expected) {
    unsigned calls = image_needs(text).calls;
    if (calls == expected) return 0;
    printf("%s: %u, not %u\n", text, calls, expected);
    return 1;
}

int main(void) {
    struct entry calls = entry_of(90, true), plain = entry_of(90, false), older = entry_of(80, true);
    struct entry endless = plain;
    int wrong = check("no device", calls, plain, CALLS_LAUNCH);
    wrong += check("no device, second", plain, older, CALLS_LAUNCH);
    driver.cuCtxGetDevice = get_device;
    driver.cuDeviceGetAttribute = get_attribute;
    wrong += check("first of two", calls, plain, CALLS_LAUNCH);
    wrong += check("second of two", plain, calls, CALLS_LAUNCH);
    wrong += check("of another generation", plain, older, 0);
    endless.cubin.sections[1].sh_size = UINT64_MAX;
    wrong += check("names without end", endless, calls, CALLS_LAUNCH);
    wrong += check_ptx(".extern .func (.param .b64 made) malloc (.param .b64 size);", CALLS_HEAP);
    wrong +=
        check_ptx(".extern .func free(.param .b64 a); call (r),vprintf,(a, b);", CALLS_HEAP | CALLS_PRINT);
    wrong += check_ptx(".func my_malloc; mallocator, %malloc; malloc$1 $free free% _vprintf vprintf_", 0);
    wrong += check_ptx(".func __assertfail", CALLS_ASSERT);
    return wrong + check_places();
}
