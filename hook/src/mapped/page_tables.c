/* SPDX-License-Identifier: Apache-2.0
 *
 * A table that lies within one mapping is that mapping's own. Only the first and the last may be shared with
 * its neighbours: those are counted one by one.
 */
#include "mapped/page_tables.h"

#include "accounting/allocations.h"
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "base/fork_reset.h"
#include "scheduler/account.h"

#include <pthread.h>

#define TABLE UINT64_C(4096)
#define STEP  (UINT64_C(8) << 20)
enum { SMALL_PAGES = 21, LARGE_PAGES = 29 }; /* as many bits of an address one table spans */

/* Held while more is charged, which may pause. No call that gives memory back takes it. */
static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* guards the next; a leaf */
static struct allocations shared = ALLOCATIONS_INITIALIZER; /* first and last tables; `value`: of how many */
static uint64_t size_of_all;                  /* bytes of tables, but for those that are not charged yet */
static uint64_t coming;                       /* bytes of these, for which `growing` is held */
static uint64_t charged[CONVGPU_MAX_DEVICES]; /* bytes, of account_used() as well */

static uint64_t less(uint64_t from, uint64_t size) {
    return from > size ? from - size : 0;
}

/* What is to be charged for so many bytes: all but less than a step. Memory may be mapped before there is a
 * context, and after the last one. */
static uint64_t wanted(int device, uint64_t size) {
    bool has = growth_has_contexts(device) || growth_contexts() == 0;
    return has ? size / STEP * STEP : 0;
}

/* Looks and takes at once: who comes meanwhile must not rely on what goes. */
static void give_back(int device) {
    pthread_mutex_lock(&lock);
    uint64_t gone = less(charged[device], wanted(device, size_of_all + coming));
    charged[device] -= gone;
    pthread_mutex_unlock(&lock);
    if (gone == 0) return;
    growth_show(device, gone);
    headroom_give(device, gone);
}

void page_tables_settle(void) {
    for (int device = 0; device < (int)account_devices(); device++) give_back(device);
}

/* `growing` is held. */
static CUresult charge_device(int device, const char *call) {
    struct charge charge = {.device = device, .call = call};
    pthread_mutex_lock(&lock);
    uint64_t missing = less(wanted(device, size_of_all + coming), charged[device]);
    pthread_mutex_unlock(&lock);
    if (missing == 0) return CUDA_SUCCESS;
    CUresult result = charge_open(&charge, missing);
    if (result != CUDA_SUCCESS) return result;
    growth_hide(device, missing);
    pthread_mutex_lock(&lock);
    charged[device] += missing;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Counts so much more if all of it is charged. */
static bool enter(uint64_t size) {
    bool fits = true;
    pthread_mutex_lock(&lock);
    for (int device = 0; device < (int)account_devices() && fits; device++)
        fits = wanted(device, size_of_all + size) <= charged[device];
    if (fits) size_of_all += size;
    pthread_mutex_unlock(&lock);
    return fits;
}

static void set_coming(uint64_t size) {
    pthread_mutex_lock(&lock);
    coming = size;
    pthread_mutex_unlock(&lock);
}

void page_tables_go(uint64_t size) {
    pthread_mutex_lock(&lock);
    size_of_all -= size;
    pthread_mutex_unlock(&lock);
    page_tables_settle();
}

/* What is paused or refused is not counted, so that it neither pauses nor refuses what is small. */
CUresult page_tables_come(const char *call, uint64_t size) {
    CUresult result = CUDA_SUCCESS;
    if (enter(size)) return CUDA_SUCCESS;
    pthread_mutex_lock(&growing);
    set_coming(size);
    while (result == CUDA_SUCCESS && !enter(size))
        for (int device = 0; device < (int)account_devices() && result == CUDA_SUCCESS; device++)
            result = charge_device(device, call);
    set_coming(0);
    pthread_mutex_unlock(&growing);
    page_tables_settle();
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

/* Bytes of tables of that kind that come or go with a mapping. `lock` is held. */
static uint64_t turn_kind(uint64_t address, uint64_t size, unsigned span, bool comes) {
    if (size == 0) return 0;
    uint64_t first = address >> span, last = (address + size - 1) >> span;
    uint64_t count = turn_shared(first, span, comes);
    if (last > first) count += turn_shared(last, span, comes) + last - first - 1;
    return count * TABLE;
}

static uint64_t turn(uint64_t address, uint64_t size, bool host, bool comes) {
    uint64_t large = turn_kind(address, size, LARGE_PAGES, comes);
    return large + (host ? turn_kind(address, size, SMALL_PAGES, comes) : 0);
}

/* Who came to tables that cannot be had while they were asked for, keeps them. */
CUresult page_tables_map(const char *call, uint64_t address, uint64_t size, bool host) {
    pthread_mutex_lock(&lock);
    uint64_t tables = turn(address, size, host, true);
    pthread_mutex_unlock(&lock);
    CUresult result = page_tables_come(call, tables);
    if (result == CUDA_SUCCESS) return result;
    pthread_mutex_lock(&lock);
    size_of_all += tables - turn(address, size, host, false);
    pthread_mutex_unlock(&lock);
    return result;
}

void page_tables_unmap(uint64_t address, uint64_t size, bool host) {
    pthread_mutex_lock(&lock);
    size_of_all -= turn(address, size, host, false);
    pthread_mutex_unlock(&lock);
    page_tables_settle();
}

bool page_tables_are_of_host(uint64_t handle) {
    union {
        struct memory_properties read;
        char written[32]; /* CUmemAllocationProp */
    } properties;
    if (DRIVER(cuMemGetAllocationPropertiesFromHandle, &properties.read, handle) != CUDA_SUCCESS)
        return false;
    int type = properties.read.location.type;
    return type != LOCATION_DEVICE && type != LOCATION_PART_OF_DEVICE;
}

static void page_tables_reset(void) {
    growing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&shared);
    size_of_all = coming = 0;
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++) charged[device] = 0;
}
RESET_IN_CHILD(page_tables_reset);
