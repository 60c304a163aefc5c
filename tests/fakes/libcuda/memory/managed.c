/* SPDX-License-Identifier: Apache-2.0 */
#include "libcuda/memory/managed.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libcuda/driver.h"

#define PAGE            (UINT64_C(2) << 20)
#define HOST            (-1)
#define NOWHERE         (-2)
#define LOCATION_DEVICE 1
#define LOCATION_HOST   2

enum advice { SET_PREFERRED_LOCATION = 3, UNSET_PREFERRED_LOCATION = 4, LAST_ADVICE = 6 };
enum attribute { PREFERRED_LOCATION = 2, LAST_PREFETCH_LOCATION = 4, LAST_ATTRIBUTE = 4 };

struct managed {
    int preferred, prefetched; /* a device, HOST or NOWHERE */
    uint64_t resident;         /* pages */
    unsigned char *on_device;  /* by page */
    void *mapped;
};

static uint64_t pages_of(const struct block *block) {
    return block->counted / PAGE;
}

uint64_t managed_resident(const struct block *block) {
    return block->pages == NULL ? 0 : block->pages->resident * PAGE;
}

/* Moves a page onto its device, if there is room. */
static bool bring(struct block *block, CUdevice device, uint64_t page) {
    if (block->pages->on_device[page]) return true;
    if (!state_take(&driver.state, driver.row[device], PAGE)) return false;
    state_unlist(&driver.state, driver.row[device], (int64_t)PAGE);
    block->pages->on_device[page] = 1;
    block->pages->resident++;
    return true;
}

static void push_out(struct block *block, CUdevice device, uint64_t page) {
    if (!block->pages->on_device[page]) return;
    state_unlist(&driver.state, driver.row[device], -(int64_t)PAGE);
    device_give(device, PAGE);
    block->pages->on_device[page] = 0;
    block->pages->resident--;
}

/* The driver maps managed memory where its address is the offset in its node, too (seen on an H100). Here
 * that is not the block's address, for sanitizers keep things there. */
static void *map(uint64_t size) {
    int node =
        (int)syscall(SYS_memfd_create, "nvidia-uvm", 1); /* MFD_CLOEXEC; glibc before 2.27 has neither */
    void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (node < 0 || at == MAP_FAILED) abort(); /* this is a test double */
    void *made = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, node, (off_t)(uintptr_t)at);
    if (made != at || madvise(at, size, MADV_DONTFORK) != 0) abort();
    (void)close(node);
    return at;
}

bool managed_begin(struct block *block, CUdevice device) {
    block->pages = malloc(sizeof *block->pages);
    if (block->pages == NULL) return false;
    *block->pages = (struct managed){NOWHERE, NOWHERE, 0, calloc(pages_of(block), 1), NULL};
    if (block->pages->on_device == NULL) {
        free(block->pages);
        block->pages = NULL;
        return false;
    }
    for (uint64_t page = 0; page < pages_of(block) && bring(block, device, page); page++) continue;
    block->pages->mapped = map(block->counted);
    return true;
}

void managed_end(struct block *block, CUdevice device) {
    for (uint64_t page = 0; page < pages_of(block); page++) push_out(block, device, page);
    (void)munmap(block->pages->mapped, block->counted);
    free(block->pages->on_device);
    free(block->pages);
    block->pages = NULL;
}

static void push_out_of(struct context *context, uint64_t *left) {
    for (struct block *block = context->blocks; block != NULL && *left > 0; block = block->next) {
        if (block->pages == NULL) continue;
        for (uint64_t page = 0; page < pages_of(block) && *left > 0; page++) {
            if (!block->pages->on_device[page]) continue;
            push_out(block, context->device, page);
            *left -= *left < PAGE ? *left : PAGE;
        }
    }
}

void managed_push_out(CUdevice device, uint64_t size) {
    struct context *current = context_current();
    push_out_of(&driver.primary[device], &size);
    if (current != NULL && current != &driver.primary[device] && current->device == device)
        push_out_of(current, &size);
}

/* driver_enter_context, and finds the managed block that has all these bytes. */
static CUresult enter(CUdeviceptr address, size_t count, struct block **found) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    *found = count == 0 ? NULL : blocks_containing(&driver.blocks, address);
    bool whole =
        *found != NULL && (*found)->pages != NULL && address + count <= (*found)->address + (*found)->counted;
    return whole ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

static bool is_place(int place) {
    return place == HOST || (place >= 0 && place < driver.device_count);
}

/* What has no room on the device stays where it is, and nobody is told (seen by others, and on an H200). */
static CUresult prefetch(CUdeviceptr address, size_t count, int place) {
    struct block *block = NULL;
    CUresult result = enter(address, count, &block);
    if (result != CUDA_SUCCESS) return result;
    if (!is_place(place)) return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    CUdevice device = ((const struct context *)block->owner)->device;
    uint64_t first = (address - block->address) / PAGE, end = (address - block->address + count - 1) / PAGE;
    for (uint64_t page = first; page <= end; page++) {
        if (place == device)
            (void)bring(block, device, page);
        else
            push_out(block, device, page);
    }
    block->pages->prefetched = place;
    return driver_leave(CUDA_SUCCESS);
}

static int place_of(CUmemLocation location) {
    if (location.type == LOCATION_HOST) return HOST;
    return location.type == LOCATION_DEVICE ? location.id : NOWHERE;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice device, CUstream stream) {
    (void)stream;
    return prefetch(address, count, device);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t count, CUdevice device, CUstream stream) {
    return cuMemPrefetchAsync(address, count, device, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation location, unsigned flags,
                               CUstream stream) {
    (void)stream;
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : prefetch(address, count, place_of(location));
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t count, CUmemLocation location, unsigned flags,
                                    CUstream stream) {
    return cuMemPrefetchAsync_v2(address, count, location, flags, stream);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t count, int advice, CUdevice device) {
    struct block *block = NULL;
    CUresult result = enter(address, count, &block);
    if (result != CUDA_SUCCESS) return result;
    if (advice < 1 || advice > LAST_ADVICE) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_place(device)) return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (advice == SET_PREFERRED_LOCATION) block->pages->preferred = device;
    if (advice == UNSET_PREFERRED_LOCATION) block->pages->preferred = NOWHERE;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t count, int advice, CUmemLocation location) {
    return cuMemAdvise(address, count, advice, place_of(location));
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, int attribute, CUdeviceptr address, size_t count) {
    struct block *block = NULL;
    CUresult result = enter(address, count, &block);
    if (result != CUDA_SUCCESS) return result;
    bool known = attribute >= 1 && attribute <= LAST_ATTRIBUTE && data != NULL && size >= sizeof(int);
    if (!known) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *(int *)data = attribute == PREFERRED_LOCATION       ? block->pages->preferred
                   : attribute == LAST_PREFETCH_LOCATION ? block->pages->prefetched
                                                         : 0;
    return driver_leave(CUDA_SUCCESS);
}
