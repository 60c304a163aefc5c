/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory comes in in a table of its own, so that who comes needs no lock that is held across a look.
 */
#include "exports/kept.h"

#include "accounting/context_growth.h"
#include "accounting/headroom.h"
#include "accounting/small_pages.h"
#include "exports/descriptors.h"
#include "tables/registry.h"

#include <pthread.h>

bool kept_enter(struct kept *kept, struct allocation entry) {
    struct allocation replaced;
    if (!allocations_insert(&kept->entries, entry, &replaced)) return false;
    kept->count++;
    descriptors_wait_for(1);
    return true;
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
static void take_any(const struct allocation *entry, void *found) {
    *(struct allocation *)found = *entry;
}

bool kept_pop(struct allocations *table, struct allocation *entry) {
    entry->address = 0;
    allocations_visit(table, take_any, entry);
    return entry->address != 0 && allocations_remove(table, entry->address, entry);
}

void kept_reclaim(struct kept *kept) {
    struct allocation entry, replaced;
    bool all = descriptors_visit(set_apart, kept);
    int ended = 0;
    while (all && kept_pop(&kept->entries, &entry)) {
        kept->end(&entry);
        ended++;
    }
    while (kept_pop(&kept->open, &entry)) (void)allocations_insert(&kept->entries, entry, &replaced);
    kept->count -= (uint32_t)ended;
    descriptors_wait_for(-ended);
}

void kept_reset(struct kept *kept) {
    allocations_reset(&kept->entries);
    allocations_reset(&kept->open);
    kept->count = 0;
}

/* Bytes that the driver does not count, and we do: of what shares pages, nobody knows how many. */
static uint64_t hidden_of(const struct allocation *entry) {
    return entry->value != 0 && entry->size <= LARGEST_SMALL ? 0 : entry->size;
}

/* Whoever has imported it meanwhile is seen by a measurement. */
static void give(const struct allocation *entry) {
    int device = (int)entry->device;
    growth_show(device, hidden_of(entry));
    uint64_t size = entry->value == 0 ? entry->size : small_pages_leave(device, entry->value, entry->size);
    if (size > 0) headroom_give(device, size);
    growth_suspect(device);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `freed`; outside those of accounting/ */
static struct kept freed = {.entries = ALLOCATIONS_INITIALIZER, .open = ALLOCATIONS_INITIALIZER, .end = give};
static struct allocations incoming = ALLOCATIONS_INITIALIZER;
static _Atomic uint32_t incoming_count;

void kept_charge(uint64_t name, int device, uint64_t address, uint64_t size) {
    struct allocation replaced,
        entry = {.address = name, .size = size, .device = (uint64_t)device & 63, .value = address};
    growth_hide(device, hidden_of(&entry));
    incoming_count++;
    descriptors_wait_for(1);
    (void)allocations_insert(&incoming, entry, &replaced); /* without memory it stays charged */
}

void kept_look(void) {
    struct allocation entry;
    if (freed.count == 0 && incoming_count == 0) return;
    pthread_mutex_lock(&lock);
    while (kept_pop(&incoming, &entry)) {
        (void)kept_enter(&freed, entry);
        incoming_count--;
        descriptors_wait_for(-1);
    }
    kept_reclaim(&freed);
    pthread_mutex_unlock(&lock);
}

static void freed_reclaim(int device, bool trim) {
    (void)device;
    (void)trim;
    kept_look();
}

/* For allocations_visit(). */
static void freed_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    visitor->visit(&(struct live_allocation){.kind = "memory that others keep",
                                             .device = (int)entry->device,
                                             .address = entry->value,
                                             .size = entry->size,
                                             .call = "cuMemGetHandleForAddressRange",
                                             .made = entry->made},
                   visitor->argument);
}

static void freed_enumerate(registry_visit *visit, void *argument) {
    struct registry_visitor visitor = {visit, argument};
    allocations_visit(&incoming, freed_show, &visitor);
    pthread_mutex_lock(&lock);
    allocations_visit(&freed.entries, freed_show, &visitor);
    pthread_mutex_unlock(&lock);
}

static void freed_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    kept_reset(&freed);
    allocations_reset(&incoming);
    incoming_count = 0;
}
REGISTER_FAMILY(freed, .reset = freed_reset, .reclaim = freed_reclaim, .unkeep = kept_look,
                .enumerate = freed_enumerate);
