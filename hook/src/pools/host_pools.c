/* SPDX-License-Identifier: Apache-2.0 */
#include "pools/host_pools.h"

#include "accounting/allocations.h"
#include "mapped/page_tables.h"
#include "tables/registry.h"

#include <pthread.h>

#define TABLE UINT64_C(4096)
enum { PAGES = 512 }; /* of 4 KiB under one table */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;     /* guards the next; a leaf */
static struct allocations counted = ALLOCATIONS_INITIALIZER; /* by pool; `size`: bytes of tables */

/* Adds to what is counted for a pool (less: as unsigned arithmetic has it). `lock` is held. */
static void add(CUmemoryPool pool, uint64_t size) {
    struct allocation replaced, entry = {.address = (uint64_t)(uintptr_t)pool};
    (void)allocations_remove(&counted, entry.address, &entry);
    entry.size += size;
    if (entry.size > 0) (void)allocations_insert(&counted, entry, &replaced);
}

/* Bytes that it needs beyond what is counted; what is too much is taken away, and goes. */
static uint64_t settle(CUmemoryPool pool) {
    struct allocation entry = {0};
    uint64_t reserved = 0;
    pthread_mutex_lock(&lock);
    (void)allocations_find(&counted, (uint64_t)(uintptr_t)pool, &entry);
    (void)DRIVER(cuMemPoolGetAttribute, pool, MEMPOOL_RESERVED, &reserved);
    uint64_t has = entry.size, needs = (reserved / PAGES + TABLE - 1) / TABLE * TABLE;
    if (needs < has) add(pool, needs - has);
    pthread_mutex_unlock(&lock);
    if (needs < has) page_tables_go(has - needs);
    return needs > has ? needs - has : 0;
}

CUresult host_pools_grown(CUmemoryPool pool, const char *call) {
    uint64_t more = settle(pool);
    CUresult result = more > 0 ? page_tables_come(call, more) : CUDA_SUCCESS;
    if (more == 0 || result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&lock);
    add(pool, more);
    pthread_mutex_unlock(&lock);
    return result;
}

void host_pools_fell(CUmemoryPool pool) {
    (void)settle(pool);
}

static void host_pools_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&counted);
}
REGISTER_FAMILY(host_pools, .reset = host_pools_reset);
