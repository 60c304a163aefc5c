/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear probing with backward-shift deletion: no tombstones, so a table in steady state never degrades.
 */
#include "accounting/allocations.h"

#include "base/coarse_clock.h"

#include <sys/mman.h>

enum { FIRST_CAPACITY = 144 }; /* of one page */

/* Fibonacci hashing: addresses are multiples of 512, their entropy is in the middle bits. The upper half of
 * the product, as a fraction of the capacity. */
static size_t home(const struct allocations *table, uint64_t address) {
    uint64_t hash = address * 0x9E3779B97F4A7C15u >> 32;
    return (size_t)(hash * table->capacity >> 32);
}

static size_t after(const struct allocations *table, size_t slot) {
    return slot + 1 < table->capacity ? slot + 1 : 0;
}

/* Steps from one slot forward to the other. */
static size_t distance(const struct allocations *table, size_t from, size_t to) {
    return to >= from ? to - from : to + table->capacity - from;
}

static size_t allocations_probe(const struct allocations *table, uint64_t address) {
    size_t slot = home(table, address);
    while (table->slots[slot].address != 0 && table->slots[slot].address != address)
        slot = after(table, slot);
    return slot;
}

static struct allocation *map_slots(size_t capacity) {
    void *slots = mmap(NULL, capacity * sizeof(struct allocation), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return slots == MAP_FAILED ? NULL : slots;
}

/* Grows by half at 3/4, so that the load stays between 1/2 and 3/4 while the number of entries grows. */
static bool allocations_make_room(struct allocations *table) {
    if (table->capacity > 0 && table->count + 1 <= table->capacity / 4 * 3) return true;
    struct allocations grown = {.capacity = table->capacity ? table->capacity / 2 * 3 : FIRST_CAPACITY};
    grown.slots = map_slots(grown.capacity);
    if (!grown.slots) return false;
    for (size_t slot = 0; slot < table->capacity; slot++) {
        if (table->slots[slot].address == 0) continue;
        grown.slots[allocations_probe(&grown, table->slots[slot].address)] = table->slots[slot];
    }
    if (table->slots) munmap(table->slots, table->capacity * sizeof *table->slots);
    table->slots = grown.slots;
    table->capacity = grown.capacity;
    return true;
}

bool allocations_insert(struct allocations *table, struct allocation entry, struct allocation *replaced) {
    *replaced = (struct allocation){0};
    if (entry.made == 0) entry.made = coarse_clock_read();
    spinlock_lock(&table->lock);
    bool room = allocations_make_room(table);
    if (room) {
        struct allocation *slot = &table->slots[allocations_probe(table, entry.address)];
        if (slot->address == 0) {
            table->count++;
        } else {
            *replaced = *slot;
        }
        *slot = entry;
    }
    spinlock_unlock(&table->lock);
    return room;
}

/* Empties `slot` and moves the entries behind it back, as far as their home allows. */
static void empty_slot(struct allocations *table, size_t slot) {
    for (size_t next = after(table, slot); table->slots[next].address != 0; next = after(table, next)) {
        size_t from_home = distance(table, home(table, table->slots[next].address), next);
        if (from_home < distance(table, slot, next)) continue; /* its home lies behind the hole */
        table->slots[slot] = table->slots[next];
        slot = next;
    }
    table->slots[slot] = (struct allocation){0};
    table->count--;
}

bool allocations_remove(struct allocations *table, uint64_t address, struct allocation *removed) {
    bool found = false;
    spinlock_lock(&table->lock);
    if (table->capacity > 0 && address != 0) {
        size_t slot = allocations_probe(table, address);
        found = table->slots[slot].address != 0;
        if (found) {
            *removed = table->slots[slot];
            empty_slot(table, slot);
        }
    }
    spinlock_unlock(&table->lock);
    return found;
}

bool allocations_share(struct allocations *table, uint64_t address) {
    bool found = false;
    spinlock_lock(&table->lock);
    if (table->capacity > 0 && address != 0) {
        struct allocation *entry = &table->slots[allocations_probe(table, address)];
        found = entry->address != 0;
        if (found) entry->shared = 1;
    }
    spinlock_unlock(&table->lock);
    return found;
}

bool allocations_find(struct allocations *table, uint64_t address, struct allocation *found) {
    spinlock_lock(&table->lock);
    bool there = table->capacity > 0 && address != 0;
    if (there) {
        *found = table->slots[allocations_probe(table, address)];
        there = found->address != 0;
    }
    spinlock_unlock(&table->lock);
    return there;
}

static void set_dying(struct allocations *table, uint64_t context, bool dying) {
    spinlock_lock(&table->lock);
    for (size_t slot = 0; table->count > 0 && slot < table->capacity; slot++) {
        struct allocation *entry = &table->slots[slot];
        bool meant = context == ALLOCATIONS_ANY || entry->context == context >> 1;
        if (entry->address != 0 && meant) entry->dying = dying;
    }
    spinlock_unlock(&table->lock);
}

void allocations_mark(struct allocations *table, uint64_t context) {
    set_dying(table, context, true);
}

void allocations_unmark(struct allocations *table, uint64_t context) {
    set_dying(table, context, false);
}

void allocations_add_size(const struct allocation *entry, void *sizes) {
    ((uint64_t *)sizes)[entry->device] += entry->size;
}

void allocations_drop(struct allocations *table, uint64_t context, allocations_each *each, void *argument) {
    spinlock_lock(&table->lock);
    for (size_t slot = 0; table->count > 0 && slot < table->capacity;) {
        struct allocation *entry = &table->slots[slot];
        bool meant = context == ALLOCATIONS_ANY || entry->context == context >> 1;
        if (entry->address == 0 || !meant || !entry->dying) {
            slot++;
            continue;
        }
        if (each) each(entry, argument);
        empty_slot(table, slot); /* the next entry may stand here now: examine the slot again */
    }
    spinlock_unlock(&table->lock);
}

void allocations_visit(struct allocations *table, allocations_each *each, void *argument) {
    spinlock_lock(&table->lock);
    for (size_t slot = 0; slot < table->capacity; slot++)
        if (table->slots[slot].address != 0) each(&table->slots[slot], argument);
    spinlock_unlock(&table->lock);
}

void allocations_reset(struct allocations *table) {
    if (table->slots) munmap(table->slots, table->capacity * sizeof *table->slots);
    *table = (struct allocations)ALLOCATIONS_INITIALIZER;
}
