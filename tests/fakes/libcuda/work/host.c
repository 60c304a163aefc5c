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
    struct context *context; /* whose device has tables of it, and with which it ends */
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

/* Whether nothing that is pinned lies in that many bytes' table. */
static bool is_unused(uint64_t number, uint64_t span) {
    return *find(number * span, span) == NULL;
}

/* Bytes of tables of this kind that what lies there has for itself; it is not in the list. */
static uint64_t own_tables(uint64_t address, uint64_t size, uint64_t span) {
    uint64_t first = address / span, last = (address + size - 1) / span, count = is_unused(first, span);
    if (last > first) count += last - first - 1 + is_unused(last, span);
    return count * TABLE;
}

static uint64_t tables_of(uint64_t address, uint64_t size) {
    return own_tables(address, size, TABLE_OF_HOST) + own_tables(address, size, TABLE_REGION);
}

static CUresult enter(struct context *context, uint64_t address, uint64_t size, bool allocated,
                      unsigned flags) {
    if (!may_pin(size)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!tables_take(context->device, tables_of(address, size))) return CUDA_ERROR_OUT_OF_MEMORY;
    struct pinned *new = malloc(sizeof *new);
    if (new == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *new = (struct pinned){address, size, allocated, flags, pinned, context};
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
    result = enter(context, (uint64_t)(uintptr_t)made, size, true, flags);
    if (result == CUDA_SUCCESS)
        *address = made;
    else
        munmap(made, size);
    return driver_leave(result);
}

CUresult cuMemAllocHost_v2(void **address, size_t size) {
    return cuMemHostAlloc(address, size, 0);
}

/* Ends what the link leads to. */
static void end(struct pinned **link) {
    struct pinned *found = *link;
    *link = found->next;
    tables_give(found->context->device, tables_of(found->address, found->size));
    if (found->allocated) munmap((void *)(uintptr_t)found->address, found->size);
    free(found);
}

void host_end_all(struct context *context) {
    struct pinned **link = &pinned;
    while (*link != NULL)
        if ((*link)->context == context)
            end(link);
        else
            link = &(*link)->next;
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
    end(link);
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
    return driver_leave(enter(context, at, size, false, flags));
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
