/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear probing with backward-shift deletion: no tombstones, so a table in steady state never degrades.
 */
#include "allocations.h"

#include <sys/mman.h>

enum { FIRST_CAPACITY = 128 }; /* 3 KiB: one page */

/* Fibonacci hashing: addresses are multiples of 512, their entropy is in the middle bits. */
static size_t home(const struct allocations *table, uint64_t address) {
    return (size_t)((address * 0x9E3779B97F4A7C15u) >> 20) & (table->capacity - 1);
}

static size_t find(const struct allocations *table, uint64_t address) {
    size_t slot = home(table, address);
    while (table->slots[slot].address != 0 && table->slots[slot].address != address)
        slot = (slot + 1) & (table->capacity - 1);
    return slot;
}

static struct allocation *map_slots(size_t capacity) {
    void *slots = mmap(NULL, capacity * sizeof(struct allocation), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return slots == MAP_FAILED ? NULL : slots;
}

/* Grows at 3/4, so that the load stays between 3/8 and 3/4 while the number of entries grows. */
static bool make_room(struct allocations *table) {
    if (table->capacity > 0 && table->count + 1 <= table->capacity / 4 * 3) return true;
    struct allocations grown = {.capacity = table->capacity ? table->capacity * 2 : FIRST_CAPACITY};
    grown.slots = map_slots(grown.capacity);
    if (!grown.slots) return false;
    for (size_t slot = 0; slot < table->capacity; slot++) {
        if (table->slots[slot].address == 0) continue;
        grown.slots[find(&grown, table->slots[slot].address)] = table->slots[slot];
    }
    if (table->slots) munmap(table->slots, table->capacity * sizeof *table->slots);
    table->slots = grown.slots;
    table->capacity = grown.capacity;
    return true;
}

bool allocations_insert(struct allocations *table, struct allocation entry, struct allocation *replaced) {
    *replaced = (struct allocation){0};
    latch_take(&table->latch);
    bool room = make_room(table);
    if (room) {
        struct allocation *slot = &table->slots[find(table, entry.address)];
        if (slot->address == 0) {
            table->count++;
        } else {
            *replaced = *slot;
        }
        *slot = entry;
    }
    latch_leave(&table->latch);
    return room;
}

/* Empties `slot` and moves the entries behind it back, as far as their home allows. */
static void empty_slot(struct allocations *table, size_t slot) {
    size_t mask = table->capacity - 1;
    for (size_t next = (slot + 1) & mask; table->slots[next].address != 0; next = (next + 1) & mask) {
        size_t distance = (next - home(table, table->slots[next].address)) & mask;
        if (distance < ((next - slot) & mask)) continue; /* its home lies behind the hole */
        table->slots[slot] = table->slots[next];
        slot = next;
    }
    table->slots[slot] = (struct allocation){0};
    table->count--;
}

bool allocations_remove(struct allocations *table, uint64_t address, struct allocation *removed) {
    bool found = false;
    latch_take(&table->latch);
    if (table->capacity > 0 && address != 0) {
        size_t slot = find(table, address);
        found = table->slots[slot].address != 0;
        if (found) {
            *removed = table->slots[slot];
            empty_slot(table, slot);
        }
    }
    latch_leave(&table->latch);
    return found;
}

bool allocations_find(struct allocations *table, uint64_t address, struct allocation *found) {
    latch_take(&table->latch);
    bool there = table->capacity > 0 && address != 0;
    if (there) {
        *found = table->slots[find(table, address)];
        there = found->address != 0;
    }
    latch_leave(&table->latch);
    return there;
}

static void set_dying(struct allocations *table, uint64_t context, bool dying) {
    latch_take(&table->latch);
    for (size_t slot = 0; table->count > 0 && slot < table->capacity; slot++) {
        struct allocation *entry = &table->slots[slot];
        if (entry->address != 0 && entry->context == context >> 1) entry->dying = dying;
    }
    latch_leave(&table->latch);
}

void allocations_mark(struct allocations *table, uint64_t context) {
    set_dying(table, context, true);
}

void allocations_unmark(struct allocations *table, uint64_t context) {
    set_dying(table, context, false);
}

void allocations_drop(struct allocations *table, uint64_t context, uint64_t *sizes) {
    latch_take(&table->latch);
    for (size_t slot = 0; table->count > 0 && slot < table->capacity;) {
        struct allocation *entry = &table->slots[slot];
        if (entry->address == 0 || entry->context != context >> 1 || !entry->dying) {
            slot++;
            continue;
        }
        sizes[entry->device] += entry->size;
        empty_slot(table, slot); /* the next entry may stand here now: look again */
    }
    latch_leave(&table->latch);
}

void allocations_reset(struct allocations *table) {
    if (table->slots) munmap(table->slots, table->capacity * sizeof *table->slots);
    *table = (struct allocations)ALLOCATIONS_INITIALIZER;
}
