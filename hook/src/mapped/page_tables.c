/* SPDX-License-Identifier: Apache-2.0
 *
 * A table that lies within one mapping is that mapping's own. Only the first and the last may be shared with
 * its neighbours: those are counted one by one.
 */
#include "mapped/page_tables.h"

#include "accounting/allocations.h"
#include "accounting/context_growth.h"
#include "accounting/headroom.h"
#include "base/fork_reset.h"
#include "scheduler/account.h"

#include <pthread.h>
#include <stdatomic.h>

#define TABLE UINT64_C(4096)
#define STEP  (UINT64_C(8) << 20)
enum { SMALL_PAGES = 21, LARGE_PAGES = 29 }; /* as many bits of an address one table spans */

/* Held while more is charged, which may pause. No call that gives memory back takes it. */
static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* guards the next; a leaf */
static struct allocations shared = ALLOCATIONS_INITIALIZER; /* first and last tables; `value`: of how many */
static _Atomic uint64_t size_of_all;                        /* bytes of tables that there are */
static _Atomic uint64_t charged[CONVGPU_MAX_DEVICES];       /* bytes, of account_used() as well */

static uint64_t less(uint64_t from, uint64_t size) {
    return from > size ? from - size : 0;
}

/* What is to be charged: all that is there but for less than a step. Memory may be mapped before there is a
 * context, and after the last one. */
static uint64_t wanted(int device) {
    bool has = growth_has_contexts(device) || growth_contexts() == 0;
    return has ? size_of_all / STEP * STEP : 0;
}

static void give_back(int device) {
    uint64_t had = charged[device], keeps = 0;
    do {
        keeps = wanted(device);
        if (had <= keeps) return;
    } while (!atomic_compare_exchange_weak(&charged[device], &had, keeps));
    growth_show(device, had - keeps);
    headroom_give(device, had - keeps);
}

void page_tables_settle(void) {
    for (int device = 0; device < (int)account_devices(); device++) give_back(device);
}

static CUresult charge_device(int device, const char *call) {
    struct charge charge = {.device = device, .call = call};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&growing);
    uint64_t missing = less(wanted(device), charged[device]);
    if (missing > 0) result = headroom_add(&charge, missing, false);
    if (missing > 0 && result == CUDA_SUCCESS) {
        growth_hide(device, missing);
        charged[device] += missing;
    }
    pthread_mutex_unlock(&growing);
    give_back(device); /* of what went meanwhile */
    return result;
}

void page_tables_go(uint64_t size) {
    size_of_all -= size;
    page_tables_settle();
}

CUresult page_tables_come(const char *call, uint64_t size) {
    CUresult result = CUDA_SUCCESS;
    size_of_all += size;
    for (int device = 0; device < (int)account_devices() && result == CUDA_SUCCESS; device++)
        if (wanted(device) > charged[device]) result = charge_device(device, call);
    return result;
}

/* How many tables come with one mapping more that needs this one, or go with one less: 1 or 0. `lock` is
 * held. Without memory for the record it is not counted. */
static uint64_t turn_shared(uint64_t number, unsigned span, bool comes) {
    struct allocation entry = {.address = number << 6 | span}, replaced;
    bool known = allocations_remove(&shared, entry.address, &entry);
    if (!comes && !known) return 0;
    entry.value = comes ? (known ? entry.value + 1 : 1) : entry.value - 1;
    bool entered = entry.value > 0 && allocations_insert(&shared, entry, &replaced);
    return comes ? entered && !known : entry.value == 0;
}

/* Bytes of tables of that kind that come or go with a mapping. */
static uint64_t turn(uint64_t address, uint64_t size, unsigned span, bool comes) {
    if (size == 0) return 0;
    uint64_t first = address >> span, last = (address + size - 1) >> span;
    pthread_mutex_lock(&lock);
    uint64_t count = turn_shared(first, span, comes);
    if (last > first) count += turn_shared(last, span, comes) + last - first - 1;
    pthread_mutex_unlock(&lock);
    return count * TABLE;
}

CUresult page_tables_map(const char *call, uint64_t address, uint64_t size) {
    CUresult result = page_tables_come(call, turn(address, size, LARGE_PAGES, true));
    if (result != CUDA_SUCCESS) page_tables_unmap(address, size);
    return result;
}

void page_tables_unmap(uint64_t address, uint64_t size) {
    page_tables_go(turn(address, size, LARGE_PAGES, false));
}

CUresult page_tables_map_host(const char *call, uint64_t address, uint64_t size) {
    uint64_t small = turn(address, size, SMALL_PAGES, true);
    CUresult result = page_tables_come(call, small + turn(address, size, LARGE_PAGES, true));
    if (result != CUDA_SUCCESS) page_tables_unmap_host(address, size);
    return result;
}

void page_tables_unmap_host(uint64_t address, uint64_t size) {
    uint64_t small = turn(address, size, SMALL_PAGES, false);
    page_tables_go(small + turn(address, size, LARGE_PAGES, false));
}

static void page_tables_reset(void) {
    growing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&shared);
    size_of_all = 0;
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++) charged[device] = 0;
}
RESET_IN_CHILD(page_tables_reset);
