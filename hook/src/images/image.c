/* SPDX-License-Identifier: Apache-2.0 */
#include "images/image.h"

#include "base/no_cancel.h"
#include "images/driver_calls.h"
#include "images/ptx.h"
#include "tables/driver.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    WRAPPER = 0x466243b1,
    FAT = (int)0xba55ed50,
    ENTRY_PTX = 1,
    ENTRY_CUBIN = 2,
    ENTRIES = 4096,
    SECTIONS = 1 << 20
};
enum {
    AT_ONCE = 64,
    PAGE = 4096,
    LONGEST = 64 << 20,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    LITTLE = 4096
};
#define STEP (UINT64_C(2) << 20)

/* What cudart hands over: __fatBinC_Wrapper_t. */
struct wrapper {
    uint32_t magic, version;
    uint64_t data, rest;
};

struct fat_header {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size; /* of all entries */
};

struct fat_entry {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t size; /* of what follows the header */
    uint32_t compressed_size, options;
    uint16_t minor, major;
    uint32_t architecture; /* 90 is 9.0 */
};

static bool copy(void *to, uint64_t from, size_t size) {
    struct iovec here = {.iov_base = to, .iov_len = size};
    struct iovec there = {.iov_base = (void *)(uintptr_t)from, .iov_len = size};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}

static bool holds_variables(uint64_t names, const Elf64_Shdr *section) {
    static const char *const prefixes[] = {".nv.global", ".nv.constant"};
    char text[16] = "";
    if (section->sh_size < LITTLE || !copy(text, names + section->sh_name, 12)) return false;
    for (int index = 0; index < 2; index++)
        if (strncmp(text, prefixes[index], strlen(prefixes[index])) == 0) return true;
    return false;
}

/* What these names tell that code calls; reads at most *left of them, and subtracts what it did. Before the
 * first stands a NUL, and before each further part what may be the begin of a name. */
static unsigned calls_in_names(uint64_t from, uint64_t size, uint64_t *left) {
    char part[DRIVER_CALLS_LONGEST + PAGE] = "";
    size_t before = 1;
    unsigned calls = 0;
    if (size > *left) size = *left;
    *left -= size;
    for (uint64_t begin = 0; begin < size; begin += PAGE) {
        size_t here = size - begin < PAGE ? (size_t)(size - begin) : PAGE;
        if (!copy(part + before, from + begin, here)) return calls;
        calls |= driver_calls_in(part, before + here, true);
        memmove(part, part + before + here - DRIVER_CALLS_LONGEST, here < PAGE ? 0 : DRIVER_CALLS_LONGEST);
        before = DRIVER_CALLS_LONGEST;
    }
    return calls;
}

static void add_section(struct image_needs *needs, uint64_t image, uint64_t names, const Elf64_Shdr *section,
                        uint64_t *left) {
    if (section->sh_type == SHT_STRTAB)
        needs->calls |= calls_in_names(image + section->sh_offset, section->sh_size, left);
    if (holds_variables(names, section) &&
        __builtin_add_overflow(needs->variables, section->sh_size, &needs->variables))
        needs->variables = UINT64_MAX;
}

static struct image_needs read_cubin(uint64_t image) {
    const struct image_needs nothing = {0};
    struct image_needs needs = {0};
    Elf64_Ehdr header;
    Elf64_Shdr sections[AT_ONCE], first, names;
    uint64_t left = LONGEST; /* a broken image may have many tables, or one that is endless */
    if (!copy(&header, image, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof first ||
        !copy(&first, image + header.e_shoff, sizeof first))
        return nothing;
    uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size;
    uint64_t row = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first.sh_link;
    if (count > SECTIONS || !copy(&names, image + header.e_shoff + row * sizeof names, sizeof names))
        return nothing;
    for (uint64_t begin = 0; begin < count; begin += AT_ONCE) {
        uint64_t part = count - begin < AT_ONCE ? count - begin : AT_ONCE;
        if (!copy(sections, image + header.e_shoff + begin * sizeof first, part * sizeof first))
            return nothing;
        for (uint64_t index = 0; index < part; index++)
            add_section(&needs, image, image + names.sh_offset, &sections[index], &left);
    }
    return needs;
}

/* Copies a text, page by page; the buffer ends it. Returns false if it is none, or too long. */
static bool copy_text(char *buffer, uint64_t image) {
    for (size_t have = 0; have < LONGEST - PAGE;) {
        size_t part = PAGE - (image + have) % PAGE;
        if (!copy(buffer + have, image + have, part)) return have > 0;
        if (memchr(buffer + have, '\0', part)) return true;
        have += part;
    }
    return false;
}

static struct image_needs read_ptx(uint64_t image) {
    struct image_needs needs = {0};
    char first = 0;
    if (!copy(&first, image, 1) || !strchr("./ \t\r\n", first)) return needs;
    char *buffer =
        mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (buffer == MAP_FAILED) return needs;
    if (copy_text(buffer, image))
        needs =
            (struct image_needs){ptx_variables(buffer), driver_calls_in(buffer, strlen(buffer) + 1, false)};
    munmap(buffer, LONGEST);
    return needs;
}

/* The current device's compute capability, as 90 for 9.0; 0: there is none. */
static uint32_t capability(void) {
    CUdevice ordinal;
    int major = 0, minor = 0;
    if (DRIVER(cuCtxGetDevice, &ordinal) != CUDA_SUCCESS) return 0;
    DRIVER(cuDeviceGetAttribute, &major, ATTRIBUTE_MAJOR, ordinal);
    DRIVER(cuDeviceGetAttribute, &minor, ATTRIBUTE_MINOR, ordinal);
    return (uint32_t)(major * 10 + minor);
}

/* A cubin runs on devices of its own generation that are not older. */
static bool runs(uint32_t architecture, uint32_t device) {
    return device == 0 || (architecture / 10 == device / 10 && architecture <= device);
}

/* Of the cubins that run there, the newest, the last of several; without a device, the largest variables; all
 * that any of those calls. Without a cubin, the last PTX. */
static struct image_needs read_fat(uint64_t image) {
    struct image_needs found = {0};
    struct fat_header header;
    struct fat_entry entry;
    uint64_t ptx = 0;
    bool any = false;
    uint32_t best = 0, device = capability();
    if (!copy(&header, image, sizeof header)) return found;
    uint64_t place = image + header.header_size, end = place + header.size;
    for (int count = 0; count < ENTRIES && place < end && copy(&entry, place, sizeof entry); count++) {
        if (entry.header_size < sizeof entry || entry.size > header.size) break;
        bool meant =
            entry.kind == ENTRY_CUBIN && runs(entry.architecture, device) && entry.architecture >= best;
        if (entry.kind == ENTRY_PTX && entry.compressed_size == 0) ptx = place + entry.header_size;
        if (meant) {
            struct image_needs needs = read_cubin(place + entry.header_size);
            if (device == 0 || entry.architecture == best) needs.calls |= found.calls;
            if (device == 0 && needs.variables < found.variables) needs.variables = found.variables;
            found = needs;
        }
        any |= meant;
        if (meant && device != 0) best = entry.architecture;
        place += entry.header_size + entry.size;
    }
    return any || ptx == 0 ? found : read_ptx(ptx);
}

static struct image_needs read_image(uint64_t image) {
    struct wrapper wrapper;
    uint32_t magic = 0;
    (void)copy(&magic, image, sizeof magic);
    if (magic == (uint32_t)WRAPPER && copy(&wrapper, image, sizeof wrapper)) {
        image = wrapper.data;
        (void)copy(&magic, image, sizeof magic);
    }
    bool is_cubin = memcmp(&magic, ELFMAG, sizeof magic) == 0;
    struct image_needs needs = magic == (uint32_t)FAT ? read_fat(image)
                               : is_cubin             ? read_cubin(image)
                                                      : read_ptx(image);
    if (needs.variables < IMAGE_LEAST) needs.variables = 0;
    if (needs.variables <= UINT64_MAX - STEP) needs.variables = (needs.variables + STEP - 1) / STEP * STEP;
    return needs;
}

struct image_needs image_needs(const void *image) {
    int saved_errno = errno;
    struct image_needs needs = {0};
    if (image) needs = read_image((uint64_t)(uintptr_t)image);
    errno = saved_errno;
    return needs;
}

struct image_needs image_file_needs(const char *file) {
    int saved_errno = errno, cancellation = no_cancel_begin();
    int descriptor = file ? open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    off_t length = descriptor < 0 ? -1 : lseek(descriptor, 0, SEEK_END);
    struct image_needs needs = {0};
    void *image = MAP_FAILED;
    if (length > 0) image = mmap(NULL, (size_t)length, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (image != MAP_FAILED) {
        needs = read_image((uint64_t)(uintptr_t)image);
        munmap(image, (size_t)length);
    }
    if (descriptor >= 0) close(descriptor);
    no_cancel_end(cancellation);
    errno = saved_errno;
    return needs;
}
