/* SPDX-License-Identifier: Apache-2.0
 *
 * `lock` guards the records and is held while a pool's attributes are read, so that no pool is destroyed
 * meanwhile. It is taken inside `creating` (context.c) and outside the tables' own locks; never held while
 * paused.
 */
#include "pools/pool.h"

#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "accounting/headroom.h"
#include "exports/descriptors.h"
#include "exports/kept.h"
#include "exports/told.h"
#include "pools/host_pools.h"
#include "pools/pieces.h"
#include "scheduler/account.h"
#include "tables/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FIRST_RECORDS = 64, POSIX_DESCRIPTOR = 1 };

/* One pool that memory was asked from. Slots are never moved to another index while `handle` is set. */
struct pool {
    CUmemoryPool handle; /* NULL: the slot is free */
    int device;          /* DEVICE_UNKNOWN: without a limit here, nothing can be had */
    bool destroyed;      /* by the program; its memory lives until the last allocation is freed */
    uint64_t charged;    /* bytes, `pending` included */
    uint64_t pending;    /* bounds of calls that have not returned */
    uint64_t live;       /* allocations */
    uint64_t name;       /* of its descriptors (exports/descriptors.h) */
    struct pieces staying;
    uint64_t absent; /* bytes charged that the driver counts for nobody */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool *pools; /* guarded by `lock`, as all below */
static _Atomic bool any;   /* a pool was entered; read without `lock` */
static size_t pool_count;  /* slots in use are below */
static size_t pool_room;
static struct allocations live = ALLOCATIONS_INITIALIZER; /* pointers; `value` is the slot */

static bool read_attribute(CUmemoryPool pool, int attribute, uint64_t *value) {
    return DRIVER(cuMemPoolGetAttribute, pool, attribute, value) == CUDA_SUCCESS;
}

static bool pool_make_room(void) {
    if (pool_count < pool_room) return true;
    size_t room = pool_room ? pool_room * 2 : FIRST_RECORDS;
    struct pool *grown =
        pools ? mremap(pools, pool_room * sizeof *pools, room * sizeof *pools, MREMAP_MAYMOVE)
              : mmap(NULL, room * sizeof *pools, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED) return false;
    pools = grown;
    pool_room = room;
    return true;
}

/* The slot of a pool that was not destroyed, or `pool_count`. `lock` is held. */
static size_t pool_find_slot(CUmemoryPool handle) {
    size_t slot = 0;
    while (slot < pool_count && (pools[slot].handle != handle || pools[slot].destroyed)) slot++;
    return slot;
}

/* Enters a pool. False: no memory. `lock` is held. */
static bool pool_enter(CUmemoryPool handle, int device, size_t *slot) {
    for (*slot = 0; *slot < pool_count && pools[*slot].handle; ++*slot) continue;
    if (*slot == pool_count) {
        if (!pool_make_room()) return false;
        pool_count++;
    }
    pools[*slot] = (struct pool){.handle = handle, .device = device, .name = descriptors_new_name()};
    any = true;
    return true;
}

/* The pool is gone, and its memory but for the pieces that stay, which are charged from now on as long as
 * anybody has a descriptor of it. `lock` is held. */
static void pool_leave_pieces(struct pool *pool) {
    uint64_t staying = pool->staying.size < pool->charged ? pool->staying.size : pool->charged;
    if (pool->staying.size == 0) return;
    pieces_forget(&pool->staying, (uint64_t)(pool - pools));
    growth_show(pool->device, pool->absent);
    kept_charge(pool->name, pool->device, 0, staying);
    pool->charged -= staying;
    pool->absent = 0;
}

/* What the pool holds of the device: what it has reserved, and pieces that stay beyond it. While it keeps
 * freed memory, idle ones may be in what it has reserved: they are charged twice then, until it is trimmed,
 * and the driver's count may have them. `lock` is held. */
static bool pool_read(struct pool *pool, uint64_t *held) {
    uint64_t reserved, used = 0, idle = pool->staying.idle;
    if (!read_attribute(pool->handle, MEMPOOL_RESERVED, &reserved)) return false;
    *held = reserved + idle;
    if (pool->staying.size == 0) return true;
    (void)read_attribute(pool->handle, MEMPOOL_USED, &used);
    uint64_t absent = used + idle > reserved ? used + idle - reserved : 0;
    if (absent > idle) absent = idle;
    growth_show(pool->device, pool->absent);
    pool->absent = absent;
    growth_hide(pool->device, pool->absent);
    return true;
}

/* Gives back what the pool does not hold any more; returns what it holds beyond its charge. `lock` is held.
 */
static uint64_t pool_settle(struct pool *pool) {
    uint64_t held = 0;
    if (pool->device == NOT_OF_A_DEVICE) host_pools_fell(pool->handle);
    if (pool->device < 0) return 0;
    if (pool->destroyed) {
        if (pool->live > 0) return 0; /* nobody can tell any more how much it has */
        pool_leave_pieces(pool);
    } else if (!pool_read(pool, &held)) {
        return 0;
    }
    if (held > pool->charged) return held - pool->charged;
    uint64_t target = held + pool->pending; /* nobody knows which of the bounds are in `held` already */
    if (target < pool->charged) {
        headroom_give(pool->device, pool->charged - target);
        pool->charged = target;
    }
    if (pool->destroyed) pool->handle = NULL;
    return 0;
}

/* Who has the descriptor keeps the pieces behind pointers that are exported. */
CUresult hooked_cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle, int type,
                                                 unsigned long long flags) {
    pthread_mutex_lock(&lock);
    size_t slot = pool_find_slot(handle);
    uint64_t expected = slot < pool_count ? told_expect(pools[slot].device, pools[slot].staying.size) : 0;
    CUresult result = DRIVER(cuMemPoolExportToShareableHandle, shareable, handle, type, flags);
    if (result == CUDA_SUCCESS && type == POSIX_DESCRIPTOR && slot < pool_count &&
        !told_watch(pools[slot].name, pools[slot].device, pools[slot].staying.size, *(int *)shareable)) {
        close(*(int *)shareable);
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    told_expected(expected);
    pthread_mutex_unlock(&lock);
    descriptors_start();
    return result;
}

/* For allocations_visit(): the allocation that an address lies in. */
struct containing {
    CUdeviceptr address;
    struct allocation found;
};

static void pool_find_containing(const struct allocation *entry, void *argument) {
    struct containing *search = argument;
    uint64_t offset = search->address - entry->address;
    if (offset < entry->size) search->found = *entry;
}

/* Memory that is being freed is not exported. */
CUresult hooked_cuMemPoolExportPointer(void *data, CUdeviceptr address) {
    struct containing search = {.address = address};
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    allocations_visit(&live, pool_find_containing, &search);
    if (search.found.address != 0) {
        struct pool *pool = &pools[search.found.value];
        uint64_t expected = told_expect(pool->device, pool->charged);
        result = DRIVER(cuMemPoolExportPointer, data, address);
        if (result == CUDA_SUCCESS) {
            pieces_stay(&pool->staying, &search.found, &live);
            told_grow(pool->name, pool->staying.size);
        }
        told_expected(expected);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Pools of any device may have given memory back to the driver. */
static void pool_synchronised(CUstream stream, bool all) {
    (void)stream;
    (void)all;
    if (!atomic_load_explicit(&any, memory_order_relaxed)) return;
    pthread_mutex_lock(&lock);
    for (size_t slot = 0; slot < pool_count; slot++)
        if (pools[slot].handle && (pools[slot].charged > 0 || pools[slot].device == NOT_OF_A_DEVICE))
            (void)pool_settle(&pools[slot]);
    pthread_mutex_unlock(&lock);
}

void pool_reclaim(int device, bool trim) {
    if (!atomic_load_explicit(&any, memory_order_relaxed)) return;
    pthread_mutex_lock(&lock);
    for (size_t slot = 0; slot < pool_count; slot++) {
        struct pool *pool = &pools[slot];
        if (!pool->handle || pool->device != device || pool->charged == 0) continue;
        if (trim && !pool->destroyed) DRIVER(cuMemPoolTrimTo, pool->handle, 0);
        (void)pool_settle(pool);
    }
    pthread_mutex_unlock(&lock);
}

/* The device of a pool that the program did not create, by what newer drivers tell or as the default pool of
 * some device; `otherwise` if it is neither. */
static int device_of_pool(CUmemoryPool handle, int otherwise) {
    int type = 0, ordinal = 0, count = 0;
    CUmemoryPool pool;
    if (DRIVER(cuMemPoolGetAttribute, handle, MEMPOOL_LOCATION_TYPE, &type) == CUDA_SUCCESS && type > 0) {
        bool found = DRIVER(cuMemPoolGetAttribute, handle, MEMPOOL_LOCATION_ID, &ordinal) == CUDA_SUCCESS;
        return type != LOCATION_DEVICE ? NOT_OF_A_DEVICE : found ? device_of_ordinal(ordinal) : otherwise;
    }
    if (DRIVER(cuDeviceGetCount, &count) != CUDA_SUCCESS) return otherwise;
    for (ordinal = 0; ordinal < count; ordinal++)
        if (DRIVER(cuDeviceGetDefaultMemPool, &pool, ordinal) == CUDA_SUCCESS && pool == handle)
            return device_of_ordinal(ordinal);
    return otherwise;
}

CUresult pool_find(CUmemoryPool handle, int *device, size_t *slot) {
    pthread_mutex_lock(&lock);
    *slot = pool_find_slot(handle);
    bool known = *slot < pool_count;
    int found = known ? pools[*slot].device : DEVICE_UNKNOWN;
    pthread_mutex_unlock(&lock);
    if (!known) {
        found = device_of_pool(handle, *device);
        pthread_mutex_lock(&lock);
        *slot = pool_find_slot(handle); /* another thread may have been first */
        bool entered = *slot < pool_count || pool_enter(handle, found, slot);
        pthread_mutex_unlock(&lock);
        if (!entered) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *device = found;
    return found == DEVICE_UNKNOWN ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

uint64_t pool_unused(size_t slot) {
    uint64_t held, used, unused = 0;
    pthread_mutex_lock(&lock);
    if (pool_read(&pools[slot], &held) && read_attribute(pools[slot].handle, MEMPOOL_USED, &used))
        unused = held > used ? held - used : 0;
    pthread_mutex_unlock(&lock);
    return unused;
}

void pool_begin(size_t slot, uint64_t bound) {
    pthread_mutex_lock(&lock);
    pools[slot].charged += bound;
    pools[slot].pending += bound;
    pthread_mutex_unlock(&lock);
}

/* An allocation has ended. `lock` is held. */
static void pool_end_live(const struct allocation *entry) {
    pools[entry->value].live--;
    pieces_change(&pools[entry->value].staying, entry, -1);
}

CUresult pool_end(size_t slot, uint64_t bound, CUdeviceptr address, uint64_t size, uint64_t *missing) {
    struct allocation replaced = {0}, entry = {.address = address, .size = size, .value = slot};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    struct pool *pool = &pools[slot];
    pool->pending -= bound;
    if (address != 0) {
        if (allocations_insert(&live, entry, &replaced)) {
            pool->live++;
            pieces_change(&pool->staying, &entry, +1);
        } else {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (replaced.address != 0) pool_end_live(&replaced);
    }
    *missing = pool_settle(pool);
    pool->charged += *missing;
    pthread_mutex_unlock(&lock);
    return result;
}

void pool_uncharge(size_t slot, uint64_t size) {
    pthread_mutex_lock(&lock);
    pools[slot].charged -= size;
    pthread_mutex_unlock(&lock);
}

CUresult hooked_cuMemPoolCreate(CUmemoryPool *handle, const struct pool_properties *properties) {
    size_t slot;
    CUresult result = DRIVER(cuMemPoolCreate, handle, properties);
    if (result != CUDA_SUCCESS) return result;
    int type = properties->location.type, device = NOT_OF_A_DEVICE;
    if (type == LOCATION_DEVICE) device = device_of_ordinal(properties->location.ordinal);
    if (type == LOCATION_PART_OF_DEVICE) device = device_of_ordinal(properties->location.ordinal & 0xff);
    if (type == LOCATION_NONE)
        return result; /* managed, without preference: charged where it is first used */
    pthread_mutex_lock(&lock);
    bool entered = pool_enter(*handle, device, &slot);
    pthread_mutex_unlock(&lock);
    if (entered) return result;
    DRIVER(cuMemPoolDestroy, *handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The lock is held across the call, so that nobody enters a new pool of the same address before this one is
 * gone. What is not freed yet stays charged until its last allocation is. */
CUresult hooked_cuMemPoolDestroy(CUmemoryPool handle) {
    pthread_mutex_lock(&lock);
    size_t slot = pool_find_slot(handle);
    if (slot < pool_count && pools[slot].device == NOT_OF_A_DEVICE) {
        DRIVER(cuMemPoolTrimTo, handle, 0); /* nobody can ask afterwards */
        host_pools_fell(handle);
    }
    CUresult result = DRIVER(cuMemPoolDestroy, handle);
    bool stays = slot < pool_count && pools[slot].staying.size > 0;
    if (result == CUDA_SUCCESS && slot < pool_count) {
        pools[slot].destroyed = true;
        if (pools[slot].device < 0)
            pools[slot].handle = NULL;
        else
            (void)pool_settle(&pools[slot]);
    }
    pthread_mutex_unlock(&lock);
    if (stays) kept_look(); /* nobody may have a descriptor of its pieces */
    return result;
}

static void pool_settle_one(CUmemoryPool handle) {
    pthread_mutex_lock(&lock);
    size_t slot = pool_find_slot(handle);
    if (slot < pool_count) (void)pool_settle(&pools[slot]);
    pthread_mutex_unlock(&lock);
}

CUresult hooked_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    CUresult result = DRIVER(cuMemPoolTrimTo, handle, keep);
    if (result == CUDA_SUCCESS) pool_settle_one(handle);
    return result;
}

CUresult hooked_cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value) {
    CUresult result = DRIVER(cuMemPoolSetAttribute, handle, attribute, value);
    if (result == CUDA_SUCCESS) pool_settle_one(handle);
    return result;
}

bool pool_remove(CUdeviceptr address, struct allocation *entry) {
    pthread_mutex_lock(&lock); /* not amid an export */
    bool removed = allocations_remove(&live, address, entry);
    pthread_mutex_unlock(&lock);
    return removed;
}

void pool_restore(const struct allocation *entry) {
    struct allocation replaced;
    pthread_mutex_lock(&lock);
    if (allocations_insert(&live, *entry, &replaced) && replaced.address != 0) pool_end_live(&replaced);
    pthread_mutex_unlock(&lock);
}

void pool_freed(const struct allocation *entry) {
    pthread_mutex_lock(&lock);
    pool_end_live(entry);
    (void)pool_settle(&pools[entry->value]);
    pthread_mutex_unlock(&lock);
}

/* Allocations from pools are no context's, but a context takes its streams along, and their frees. */
static void pool_drop(CUcontext context, uint64_t *sizes) {
    (void)context;
    (void)sizes;
    for (int device = 0; device < (int)account_devices(); device++) pool_reclaim(device, false);
}

static void pool_enumerate(registry_visit *visit, void *argument) {
    pthread_mutex_lock(&lock);
    for (size_t slot = 0; slot < pool_count; slot++) {
        const struct pool *pool = &pools[slot];
        if (pool->handle && pool->charged > 0)
            visit(&(struct live_allocation){"pool", pool->device, (uint64_t)(uintptr_t)pool->handle,
                                            pool->charged, "cuMemPool", 0},
                  argument);
    }
    pthread_mutex_unlock(&lock);
}

static void pool_reset(void) {
    if (pools) munmap(pools, pool_room * sizeof *pools);
    pools = NULL;
    any = false;
    pool_count = pool_room = 0;
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&live);
    pieces_reset();
}
REGISTER_FAMILY(pool, .reset = pool_reset, .reclaim = pool_reclaim, .synchronised = pool_synchronised,
                .drop = pool_drop, .enumerate = pool_enumerate);
