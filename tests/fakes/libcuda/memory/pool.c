/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools: reserve memory in chunks, and keep it when it is freed until the next synchronisation.
 */
#include "libcuda/memory/pool.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcuda/virtual/virtual.h"

#define POOL_STEP (UINT64_C(32) << 20)

static struct pool *pools; /* destroyed ones too, while blocks of them live */
static struct pool *default_pool[SIMULATED_DEVICES_MAX], *current_pool[SIMULATED_DEVICES_MAX];

static struct pool *make_pool(CUdevice device) {
    struct pool *pool = handle_new(HANDLE_POOL, sizeof *pool);
    if (pool == NULL) return NULL;
    pool->arena = (struct arena){.device = device, .step = POOL_STEP};
    for (int i = 0; i < 3; i++) pool->reuse[i] = 1;
    pool->next = pools;
    pools = pool;
    return pool;
}

static struct pool *pool_default(CUdevice device) {
    if (default_pool[device] == NULL) default_pool[device] = make_pool(device);
    return default_pool[device];
}

struct pool *pool_current(CUdevice device) {
    return current_pool[device] != NULL ? current_pool[device] : pool_default(device);
}

CUresult pool_allocate(struct pool *pool, uint64_t size, CUdeviceptr *address) {
    if (address == NULL || size == 0) return CUDA_ERROR_INVALID_VALUE;
    uint64_t counted = arena_counted(size);
    struct chunk *chunk = NULL;
    uint64_t at = counted == 0 ? 0 : arena_take(&pool->arena, counted, &chunk);
    if (at == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = blocks_add_at(&driver.blocks, at, size, pool, &pool->blocks);
    if (block == NULL) {
        arena_give(chunk, at, counted);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->kind = BLOCK_POOL;
    block->chunk = chunk;
    block->counted = counted;
    *address = at;
    return CUDA_SUCCESS;
}

/* Nothing of the pool is late any more. */
static void forget_late(struct pool *pool, struct until until) {
    for (struct chunk *chunk = pool->arena.chunks; chunk != NULL; chunk = chunk->next)
        if (until_covers(&until, chunk->stream, chunk->late)) chunk->late = 0;
}

static const struct until everything = {.order = UINT64_MAX};

static void delete_if_over(struct pool *pool) {
    if (!pool->destroyed || pool->blocks != NULL) return;
    forget_late(pool, everything);
    arena_end(&pool->arena);
    for (unsigned i = 0; i < pool->exported; i++) close(pool->queues[i]);
    struct pool **link = &pools;
    while (*link != pool) link = &(*link)->next;
    *link = pool->next;
    handle_free(pool);
}

void pool_free(struct block *block) {
    struct pool *pool = block->owner;
    arena_give(block->chunk, block->address, block->counted);
    blocks_remove(&driver.blocks, block, &pool->blocks);
    delete_if_over(pool);
}

static uint64_t last_order;

uint64_t pool_next_order(void) {
    return ++last_order;
}

uint64_t pool_last_order(void) {
    return last_order;
}

static bool is_default(const void *stream) {
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool until_covers(const struct until *until, const void *stream, uint64_t order) {
    bool reached = until->stream == NULL || until->stream == stream || is_default(stream);
    return reached && order <= until->order;
}

void pool_synchronise(CUdevice device, struct until until) {
    memory_synchronise(device, until);
    for (struct pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->arena.device != device && pool->arena.device != ARENA_HOST) continue;
        forget_late(pool, until);
        arena_trim(&pool->arena, pool->release_threshold);
    }
}

void pool_reclaim(CUdevice device) {
    for (struct pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->arena.device == device) arena_trim(&pool->arena, 0);
    }
}

void pool_end_all(CUdevice device) {
    for (struct pool *pool = pools, *next; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->arena.device != device) continue;
        bool last = pool->destroyed; /* then it goes with its last block */
        while (pool->blocks != NULL && pool->blocks->next != NULL) pool_free(pool->blocks);
        if (pool->blocks != NULL) pool_free(pool->blocks);
        if (last) continue;
        forget_late(pool, everything);
        arena_trim(&pool->arena, 0);
    }
}

static bool valid_properties(const CUmemPoolProps *properties) {
    const CUmemLocation *location = &properties->location;
    bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    bool host = location->type == CU_MEM_LOCATION_TYPE_HOST;
    bool numa = location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location->id == 0;
    int shareable = host ? CU_MEM_HANDLE_TYPE_NONE : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (properties->handle_types < 0 || properties->handle_types > shareable) return false;
    if (properties->allocation_type != CU_MEM_ALLOCATION_TYPE_PINNED) return false;
    return host || numa || (device && location->id >= 0 && location->id < driver.device_count);
}

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || properties == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (properties->allocation_type == CU_MEM_ALLOCATION_TYPE_MANAGED) {
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (!valid_properties(properties)) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    bool device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct pool *pool = make_pool(device ? properties->location.id : ARENA_HOST);
    if (pool == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    pool->arena.limit = properties->most;
    pool->shareable = properties->handle_types;
    *handle = pool;
    return driver_leave(CUDA_SUCCESS);
}

/* driver_enter, and finds the pool. */
static CUresult enter_pool(CUmemoryPool handle, struct pool **pool) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *pool = handle_find(HANDLE_POOL, handle);
    return *pool != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool = NULL;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) return result;
    for (int device = 0; device < driver.device_count; device++) {
        if (pool == default_pool[device]) return driver_leave(CUDA_ERROR_INVALID_VALUE);
        if (pool == current_pool[device]) current_pool[device] = NULL;
    }
    handle_forget(pool);
    pool->destroyed = true;
    delete_if_over(pool);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle, int type,
                                          unsigned long long flags) {
    struct pool *pool = NULL;
    int ends[2];
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) return result;
    bool valid = shareable != NULL && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                 pool->shareable == type;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (pool->exported == sizeof pool->queues / sizeof *pool->queues ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return driver_leave(CUDA_ERROR_OPERATING_SYSTEM);
    for (const struct chunk *chunk = pool->arena.chunks; chunk != NULL; chunk = chunk->next)
        if (chunk->parks) (void)descriptors_send(ends[1], "", 1, &chunk->reference, 1);
    pool->queues[pool->exported++] = ends[1];
    memcpy(shareable, &ends[0], sizeof ends[0]);
    return driver_leave(CUDA_SUCCESS);
}

/* Only of a pool that was exported before, as on a card. */
CUresult cuMemPoolExportPointer(void *data, CUdeviceptr address) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct block *block = blocks_find(&driver.blocks, address);
    bool valid = data != NULL && block != NULL && block->kind == BLOCK_POOL;
    struct pool *pool = valid ? block->owner : NULL;
    if (pool == NULL || pool->exported == 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    bool before = block->chunk->parks;
    if (!arena_export(block->chunk)) return driver_leave(CUDA_ERROR_OPERATING_SYSTEM);
    block->chunk->parks = true;
    for (unsigned i = 0; !before && i < pool->exported; i++)
        (void)descriptors_send(pool->queues[i], "", 1, &block->chunk->reference, 1);
    memset(data, 0, 64);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    struct pool *pool = NULL;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) return result;
    arena_trim(&pool->arena, keep);
    return driver_leave(CUDA_SUCCESS);
}

/* The high-water marks can only be set to 0, which means "from now on". */
static CUresult set_number(struct pool *pool, int attribute, uint64_t value) {
    struct arena *arena = &pool->arena;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (value != 0) return CUDA_ERROR_INVALID_VALUE;
        arena->most_reserved = arena->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (value != 0) return CUDA_ERROR_INVALID_VALUE;
        arena->most_used = arena->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool is_reuse(int attribute) {
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value) {
    struct pool *pool = NULL;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) return result;
    if (value == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_reuse(attribute)) return driver_leave(set_number(pool, attribute, *(uint64_t *)value));
    pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value != 0;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value) {
    struct pool *pool = NULL;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t numbers[] = {pool->release_threshold, pool->arena.reserved, pool->arena.most_reserved,
                                pool->arena.used, pool->arena.most_used};
    if (value == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (is_reuse(attribute)) {
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    } else if (attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        *(uint64_t *)value = numbers[attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD];
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return driver_leave(result);
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *access, size_t count) {
    struct pool *pool = NULL;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) return result;
    return driver_leave(access == NULL && count != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (pool == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *pool = pool_default(device);
    return driver_leave(*pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (pool == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *pool = pool_current(device);
    return driver_leave(*pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    struct pool *pool = handle_find(HANDLE_POOL, handle);
    if (pool == NULL || pool->arena.device != device) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    current_pool[device] = pool;
    return driver_leave(CUDA_SUCCESS);
}

/* The forms of CUDA 13, which know other locations than devices. */
static CUresult check_location(const CUmemLocation *location, int type) {
    if (location == NULL) return CUDA_ERROR_INVALID_VALUE;
    bool known = location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
    return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
    CUresult result = check_location(location, type);
    return result != CUDA_SUCCESS ? result : cuDeviceGetDefaultMemPool(pool, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
    CUresult result = check_location(location, type);
    return result != CUDA_SUCCESS ? result : cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool) {
    CUresult result = check_location(location, type);
    return result != CUDA_SUCCESS ? result : cuDeviceSetMemPool(location->id, pool);
}
