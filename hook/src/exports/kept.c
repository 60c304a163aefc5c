/* SPDX-License-Identifier: Apache-2.0 */
#include "exports/kept.h"

#include "accounting/context_growth.h"
#include "accounting/headroom.h"
#include "exports/descriptors.h"
#include "tables/registry.h"

#include <pthread.h>

bool kept_enter(struct kept *kept, struct allocation entry) {
    struct allocation before = {0}, replaced;
    if (allocations_remove(&kept->entries, entry.address, &before)) entry.size += before.size;
    bool entered = allocations_insert(&kept->entries, entry, &replaced);
    if (entered && before.address == 0) {
        kept->count++;
        descriptors_wait_for(1);
    }
    return entered;
}

bool kept_has(struct kept *kept, uint64_t name) {
    struct allocation entry;
    return allocations_find(&kept->entries, name, &entry);
}

/* For descriptors_visit(). An entry that finds no room stays charged. */
static void set_apart(uint64_t name, void *argument) {
    struct kept *kept = argument;
    struct allocation entry, replaced;
    if (allocations_remove(&kept->entries, name, &entry))
        (void)allocations_insert(&kept->open, entry, &replaced);
}

/* For allocations_visit(). */
static void take_any(const struct allocation *entry, void *address) {
    *(uint64_t *)address = entry->address;
}

void kept_reclaim(struct kept *kept) {
    struct allocation entry;
    int ended = 0;
    descriptors_visit(set_apart, kept);
    for (uint64_t name = 0; allocations_visit(&kept->entries, take_any, &name), name != 0; name = 0) {
        (void)allocations_remove(&kept->entries, name, &entry);
        kept->end(&entry);
        ended++;
    }
    struct allocations empty = kept->entries;
    kept->entries = kept->open;
    kept->open = empty;
    kept->count -= (uint32_t)ended;
    descriptors_wait_for(-ended);
}

void kept_reset(struct kept *kept) {
    allocations_reset(&kept->entries);
    allocations_reset(&kept->open);
    kept->count = 0;
}

/* Whoever has imported it meanwhile is seen by a measurement. */
static void give(const struct allocation *entry) {
    growth_show((int)entry->device, entry->size);
    headroom_give((int)entry->device, entry->size);
    growth_suspect((int)entry->device);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf but for those of accounting/ */
static struct kept freed = {.entries = ALLOCATIONS_INITIALIZER, .open = ALLOCATIONS_INITIALIZER, .end = give};

void kept_charge(uint64_t name, int device, uint64_t size) {
    struct allocation entry = {.address = name, .size = size, .device = (uint64_t)device & 63};
    growth_hide(device, size);
    pthread_mutex_lock(&lock);
    if (!kept_enter(&freed, entry)) give(&entry);
    pthread_mutex_unlock(&lock);
}

static void freed_reclaim(int device, bool trim) {
    (void)device;
    (void)trim;
    if (freed.count == 0) return;
    pthread_mutex_lock(&lock);
    kept_reclaim(&freed);
    pthread_mutex_unlock(&lock);
}

/* For allocations_visit(). */
static void freed_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    visitor->visit(&(struct live_allocation){.kind = "memory that others keep",
                                             .device = (int)entry->device,
                                             .address = entry->address,
                                             .size = entry->size,
                                             .call = "cuMemGetHandleForAddressRange",
                                             .made = entry->made},
                   visitor->argument);
}

static void freed_enumerate(registry_visit *visit, void *argument) {
    allocations_visit(&freed.entries, freed_show, &(struct registry_visitor){visit, argument});
}

static void freed_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    kept_reset(&freed);
}
REGISTER_FAMILY(freed, .reset = freed_reset, .reclaim = freed_reclaim, .enumerate = freed_enumerate);
