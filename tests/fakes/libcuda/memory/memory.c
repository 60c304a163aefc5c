/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "libcuda/driver.h"
#include "libcuda/graph/graph.h"
#include "libcuda/memory/managed.h"
#include "libcuda/memory/pool.h"
#include "libcuda/work/contents.h"
#include "libcuda/work/work.h"
#include "simulated/exports.h"

#define SMALL         (UINT64_C(1) << 20) /* up to here allocations share slabs */
#define ATTACH_GLOBAL 1u
#define ATTACH_HOST   2u

bool device_take(CUdevice device, uint64_t size) {
    if (state_take(&driver.state, driver.row[device], size)) return true;
    /* Whatever is asked for, the process's own pools come before a refusal, and then its managed memory. */
    pool_reclaim(device);
    if (state_take(&driver.state, driver.row[device], size)) return true;
    uint64_t free = state_free(&driver.state, driver.row[device]);
    managed_push_out(device, size > free ? size - free : 0);
    return state_take(&driver.state, driver.row[device], size);
}

void device_give(CUdevice device, uint64_t size) {
    state_give(&driver.state, driver.row[device], size);
}

CUresult refuse_memory(void) {
    uint64_t us = driver.state.configuration.oom_us;
    struct timespec wait = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    while (us != 0 && nanosleep(&wait, &wait) != 0 && errno == EINTR) continue;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* driver.mutex held. */
static void free_block(struct block *block) {
    struct context *context = block->owner;
    contents_discard(block->address, block->counted);
    if (block->pages != NULL) {
        managed_end(block, context->device);
    } else if (block->chunk != NULL) {
        arena_give(block->chunk, block->address, block->counted);
        arena_trim(&context->slabs, 0);
    } else if (block->exported) {
        close(block->reference);
        export_leave(&driver.state, block->row);
    } else {
        device_give(context->device, block->counted);
    }
    if (block->low_range != NULL) legacy_give_range(block->low_range);
    blocks_remove(&driver.blocks, block, &context->blocks);
}

static struct block *late_blocks; /* freed in a stream that nobody synchronised with */

static void unlist_late(struct block **link) {
    struct block *block = *link;
    *link = block->next_late;
    free_block(block);
}

void memory_synchronise(CUdevice device, struct until until) {
    for (struct block **link = &late_blocks; *link != NULL;) {
        const struct context *context = (*link)->owner;
        bool over = context->device == device && until_covers(&until, (*link)->stream, (*link)->late);
        if (over)
            unlist_late(link);
        else
            link = &(*link)->next_late;
    }
}

CUresult memory_free_late(CUdeviceptr address, const void *stream) {
    struct block *block = address == 0 ? NULL : blocks_find(&driver.blocks, address);
    if (block == NULL || block->late != 0) return address == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (block->kind == BLOCK_POOL) {
        block->chunk->late = pool_next_order();
        block->chunk->stream = stream;
    }
    if (block->kind != BLOCK_MEMORY) return memory_free(address);
    block->late = pool_next_order();
    block->stream = stream;
    block->next_late = late_blocks;
    late_blocks = block;
    return CUDA_SUCCESS;
}

void memory_free_all(struct context *context) {
    for (struct block **link = &late_blocks; *link != NULL;)
        if ((*link)->owner == context)
            unlist_late(link);
        else
            link = &(*link)->next_late;
    while (context->blocks != NULL) free_block(context->blocks);
    while (context->imports != NULL) blocks_remove(&driver.blocks, context->imports, &context->imports);
}

CUresult memory_free(CUdeviceptr address) {
    if (address == 0) return CUDA_SUCCESS;
    struct block *block = blocks_find(&driver.blocks, address); /* of any context: addresses are unified */
    if (block == NULL || block->late != 0) return CUDA_ERROR_INVALID_VALUE;
    switch (block->kind) {
    case BLOCK_MEMORY:
        free_block(block);
        break;
    case BLOCK_POOL:
        pool_free(block);
        break;
    case BLOCK_GRAPH:
        graph_free(block);
        break;
    case BLOCK_IMPORTED: /* is closed, */
    case BLOCK_MAPPING:  /* is unmapped */
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* A block with pages of its own, or NULL. driver.mutex held. */
static struct block *add_large(struct context *context, uint64_t size) {
    uint64_t counted = blocks_counted(size <= SMALL ? SMALL : size);
    if (counted == 0 || !device_take(context->device, counted)) return NULL;
    struct block *block = blocks_add(&driver.blocks, size <= SMALL ? SMALL : size, context, &context->blocks);
    if (block == NULL) device_give(context->device, counted);
    return block;
}

static uint64_t host_memory(void) {
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Managed memory, or NULL. NVML lists it for no process (seen on an H200). driver.mutex held. */
static struct block *add_managed(struct context *context, uint64_t size) {
    uint64_t total = driver.state.configuration.device[driver.row[context->device]].total;
    if (size > total + host_memory() || blocks_counted(size <= SMALL ? SMALL : size) == 0) return NULL;
    struct block *block = blocks_add(&driver.blocks, size <= SMALL ? SMALL : size, context, &context->blocks);
    if (block == NULL || managed_begin(block, context->device)) return block;
    blocks_remove(&driver.blocks, block, &context->blocks);
    return NULL;
}

/* A block in a slab, or NULL. driver.mutex held. */
static struct block *add_small(struct context *context, uint64_t size) {
    struct chunk *chunk = NULL;
    uint64_t counted = arena_counted(size);
    uint64_t at = arena_take(&context->slabs, counted, &chunk);
    if (at == 0) return NULL;
    struct block *block = blocks_add_at(&driver.blocks, at, size, context, &context->blocks);
    if (block == NULL) abort(); /* this is a test double */
    block->chunk = chunk;
    block->counted = counted;
    return block;
}

static CUresult allocate(CUdeviceptr *address, uint64_t size, bool managed) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || size == 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (capture_refuses()) return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct block *block = managed         ? add_managed(context, size)
                          : size <= SMALL ? add_small(context, size)
                                          : add_large(context, size);
    if (block == NULL) {
        driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        return refuse_memory();
    }
    *address = block->address;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    return allocate(address, size, false);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned element_size) {
    bool element = element_size == 4 || element_size == 8 || element_size == 16;
    if (pitch == NULL || width == 0 || height == 0 || !element) {
        struct context *context = NULL; /* the state of the driver is complained about first */
        CUresult result = driver_enter_context(&context);
        return result != CUDA_SUCCESS ? result : driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    uint64_t row, size;
    bool overflow = __builtin_add_overflow(width, MEMORY_PITCH - 1, &row);
    row = row / MEMORY_PITCH * MEMORY_PITCH;
    overflow = overflow || __builtin_mul_overflow(row, height, &size);
    CUresult result = allocate(address, overflow ? UINT64_MAX : size, false);
    if (result == CUDA_SUCCESS) *pitch = row;
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    if (atomic_load(&driver.phase) != DRIVER_READY) return CUDA_ERROR_NOT_INITIALIZED;
    if (flags != ATTACH_GLOBAL && flags != ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
    return allocate(address, size, true);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    /* A thread without a context may free; one whose context has ended may not. */
    const struct context *current = context_current();
    if (current != NULL && !current->alive) return driver_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    if (current != NULL && current->error != CUDA_SUCCESS) return driver_leave(current->error);
    if (capture_refuses()) return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const struct block *block = address == 0 ? NULL : blocks_find(&driver.blocks, address);
    /* It waits for what the device was given before, as on a card. */
    if (block != NULL && block->kind == BLOCK_MEMORY) work_wait_all(block->owner);
    return driver_leave(memory_free(address));
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    unsigned row = driver.row[context->device];
    if (free != NULL) *free = state_free(&driver.state, row);
    if (total != NULL) *total = driver.state.configuration.device[row].total;
    return driver_leave(CUDA_SUCCESS);
}
