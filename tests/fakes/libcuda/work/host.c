/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinned memory: allocated here, or the program's own and registered. Kernels reach it at the same address.
 */
#include "libcuda/work/host.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "libcuda/driver.h"
#include "libcuda/graph/graph.h"
#include "libcuda/memory/tables.h"

#define ALLOC_FLAGS    7u
#define REGISTER_FLAGS 15u

struct pinned {
    uint64_t address, size;
    bool allocated;
    unsigned flags;
    struct pinned *next;
    CUdevice device; /* which has tables of it */
};

static struct pinned *pinned;

static struct pinned **find(uint64_t address, uint64_t size) {
    struct pinned **link = &pinned;
    while (*link != NULL &&
           (address >= (*link)->address + (*link)->size || address + size <= (*link)->address))
        link = &(*link)->next;
    return link;
}

bool host_is_registered(uint64_t address) {
    return *find(address, 1) != NULL;
}

/* The host may have less to pin than is asked for. */
static bool may_pin(uint64_t size) {
    uint64_t most = driver.state.configuration.pinned_mib << 20, there = 0;
    for (const struct pinned *each = pinned; each != NULL; each = each->next) there += each->size;
    return most == 0 || (there <= most && size <= most - there);
}

/* Small pieces that are allocated lie beside each other; what is registered lies where the program has it. */
static uint64_t tables_of(uint64_t size, bool allocated) {
    return size / TABLE_PAGES + (allocated ? 0 : TABLE);
}

static CUresult enter(CUdevice device, uint64_t address, uint64_t size, bool allocated, unsigned flags) {
    if (!may_pin(size)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!tables_take(device, tables_of(size, allocated))) return CUDA_ERROR_OUT_OF_MEMORY;
    struct pinned *new = malloc(sizeof *new);
    if (new == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *new = (struct pinned){address, size, allocated, flags, pinned, device};
    pinned = new;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (capture_refuses()) return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (address == NULL || size == 0 || flags > ALLOC_FLAGS) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    result = enter(context->device, (uint64_t)(uintptr_t)made, size, true, flags);
    if (result == CUDA_SUCCESS)
        *address = made;
    else
        munmap(made, size);
    return driver_leave(result);
}

CUresult cuMemAllocHost_v2(void **address, size_t size) {
    return cuMemHostAlloc(address, size, 0);
}

/* Ends the memory that begins at the address and was made so. */
static CUresult leave(void *address, bool allocated, CUresult unknown) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (capture_refuses()) return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct pinned **link = find((uint64_t)(uintptr_t)address, 1), *found = *link;
    bool known =
        found != NULL && found->address == (uint64_t)(uintptr_t)address && found->allocated == allocated;
    if (!known) return driver_leave(unknown);
    *link = found->next;
    tables_give(found->device, tables_of(found->size, allocated));
    if (allocated) munmap(address, found->size);
    free(found);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemFreeHost(void *address) {
    return leave(address, true, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    uint64_t at = (uint64_t)(uintptr_t)address;
    if (result != CUDA_SUCCESS) return result;
    if (capture_refuses()) return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (address == NULL || size == 0 || flags > REGISTER_FLAGS) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (*find(at, size) != NULL) return driver_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    return driver_leave(enter(context->device, at, size, false, flags));
}

CUresult cuMemHostUnregister(void *address) {
    return leave(address, false, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* driver_enter_context, and finds the pinned memory that the address lies in. */
static CUresult enter_pinned(void *address, const void *wanted, struct pinned **found) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    *found = *find((uint64_t)(uintptr_t)address, 1);
    return *found != NULL && wanted != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *address, unsigned flags) {
    struct pinned *found = NULL;
    CUresult result = enter_pinned(address, device, &found);
    if (result != CUDA_SUCCESS) return result;
    if (flags != 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *device = (uint64_t)(uintptr_t)address;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetFlags(unsigned *flags, void *address) {
    struct pinned *found = NULL;
    CUresult result = enter_pinned(address, flags, &found);
    if (result != CUDA_SUCCESS) return result;
    *flags = found->flags;
    return driver_leave(CUDA_SUCCESS);
}
