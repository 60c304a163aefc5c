/* SPDX-License-Identifier: Apache-2.0 */
#include "libcuda/work/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libcuda/virtual/virtual.h"

#define CLOSE_ON_EXEC 1u /* MFD_CLOEXEC */
#define LINEAR_SIZE   (INT64_C(1) << 62)
#define BUFFER        (UINT64_C(1) << 20)
#define HOLE          3 /* FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE */

static int linear = -1; /* of all memory without a memfd of its own, at its address */

/* A part of one file. */
struct part {
    int file; /* -1: nothing was written there yet */
    off_t offset;
    uint64_t size;
};

static int make_file(int64_t size) {
    int file = (int)syscall(SYS_memfd_create, "simulated-gpu-memory", CLOSE_ON_EXEC); /* glibc 2.27 */
    if (file >= 0 && ftruncate(file, size) == 0) return file;
    if (file >= 0) close(file);
    return -1;
}

int contents_make(uint64_t size) {
    return make_file((int64_t)size);
}

bool contents_is_device(uint64_t address) {
    return address >= BLOCKS_FIRST_ADDRESS && address < driver.blocks.next_address;
}

/* Where the first bytes of the range lie. Returns false if they may not be touched. `written`: makes the file
 * that is not there yet. */
static bool find_part(uint64_t address, uint64_t size, bool written, struct part *part) {
    struct block *mapping = mapping_at(address);
    if (mapping == NULL) {
        if (!contents_is_device(address) || is_reserved(address)) return false;
        if (linear < 0 && written) linear = make_file(LINEAR_SIZE);
        *part = (struct part){linear, (off_t)(address - BLOCKS_FIRST_ADDRESS), size};
        return linear >= 0 || !written;
    }
    if (mapping->access == CU_MEM_ACCESS_FLAGS_PROT_NONE) return false;
    struct physical *physical = mapping->owner;
    if (physical->original != NULL) physical = physical->original;
    if (physical->contents < 0 && written) physical->contents = contents_make(physical->size);
    uint64_t offset = address - mapping->address, left = mapping->size - offset;
    *part = (struct part){physical->contents, (off_t)offset, size < left ? size : left};
    return physical->contents >= 0 || !written;
}

bool contents_present(uint64_t address, uint64_t size) {
    struct part part;
    for (uint64_t done = 0; done < size; done += part.size) {
        if (!find_part(address + done, size - done, false, &part)) return false;
    }
    return true;
}

/* All bytes, however the kernel divides them. */
static bool transfer(const struct part *part, void *host, bool written) {
    for (uint64_t done = 0; done < part->size;) {
        char *at = (char *)host + done;
        off_t offset = part->offset + (off_t)done;
        uint64_t left = part->size - done;
        ssize_t moved = written ? pwrite(part->file, at, left, offset) : pread(part->file, at, left, offset);
        if (moved <= 0 && errno != EINTR) return false;
        if (moved > 0) done += (uint64_t)moved;
    }
    return true;
}

bool contents_read(uint64_t address, void *to, uint64_t size) {
    struct part part;
    if (!contents_present(address, size)) return false;
    for (uint64_t done = 0; done < size; done += part.size) {
        if (!find_part(address + done, size - done, false, &part)) return false;
        if (part.file < 0) {
            memset((char *)to + done, 0, part.size);
        } else if (!transfer(&part, (char *)to + done, false)) {
            return false;
        }
    }
    return true;
}

bool contents_write(uint64_t address, const void *from, uint64_t size) {
    struct part part;
    if (!contents_present(address, size)) return false;
    for (uint64_t done = 0; done < size; done += part.size) {
        if (!find_part(address + done, size - done, true, &part)) return false;
        if (!transfer(&part, (char *)(uintptr_t)from + done, true)) return false;
    }
    return true;
}

bool contents_move(uint64_t to, uint64_t from, uint64_t size) {
    char *buffer = malloc(BUFFER);
    bool moved = buffer != NULL && contents_present(to, size) && contents_present(from, size);
    for (uint64_t done = 0; moved && done < size; done += BUFFER) {
        uint64_t length = size - done < BUFFER ? size - done : BUFFER;
        moved = contents_read(from + done, buffer, length) && contents_write(to + done, buffer, length);
    }
    free(buffer);
    return moved;
}

bool contents_fill(uint64_t address, const void *pattern, size_t step, uint64_t size) {
    char *buffer = malloc(BUFFER);
    bool filled = buffer != NULL && contents_present(address, size);
    for (size_t at = 0; filled && at < BUFFER && at < size; at += step) memcpy(buffer + at, pattern, step);
    for (uint64_t done = 0; filled && done < size; done += BUFFER) {
        filled = contents_write(address + done, buffer, size - done < BUFFER ? size - done : BUFFER);
    }
    free(buffer);
    return filled;
}

void contents_discard(uint64_t address, uint64_t size) {
    if (linear >= 0) fallocate(linear, HOLE, (off_t)(address - BLOCKS_FIRST_ADDRESS), (off_t)size);
}
