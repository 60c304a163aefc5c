/* SPDX-License-Identifier: Apache-2.0
 *
 * What is read from images: fat binaries with and without a device of 9.0, and names without end.
 */
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

static int check(const char *what, struct entry first, struct entry second, bool expected) {
    struct fat fat = {0xba55ed50, 1, offsetof(struct fat, entries), sizeof fat.entries, {first, second}};
    if (image_needs(&fat).device_runtime == expected) return 0;
    printf("%s: not %d\n", what, expected);
    return 1;
}

int main(void) {
    struct entry calls = entry_of(90, true), plain = entry_of(90, false), older = entry_of(80, true);
    struct entry endless = plain;
    int wrong = check("no device", calls, plain, true) + check("no device, second", plain, older, true);
    driver.cuCtxGetDevice = get_device;
    driver.cuDeviceGetAttribute = get_attribute;
    wrong += check("first of two", calls, plain, true) + check("second of two", plain, calls, true);
    wrong += check("of another generation", plain, older, false);
    endless.cubin.sections[1].sh_size = UINT64_MAX;
    return wrong + check("names without end", endless, calls, true);
}
