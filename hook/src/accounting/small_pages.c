/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of eight bytes per page, as in allocations.c: linear probing, at least half full.
 */
#include "accounting/small_pages.h"

#include "base/spinlock.h"

#include <convgpu/page.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_CAPACITY = 512, SHIFT = 21, COUNT_BITS = 16, UNIT = 512 };

static struct spinlock lock; /* guards all below; taken inside the locks of allocations.h */
static uint64_t *slots;      /* page's number << COUNT_BITS | allocations in it; 0: empty */
static size_t capacity, count;
static struct {
    uint64_t pages, used; /* bytes used, each allocation rounded to units */
} devices[CONVGPU_MAX_DEVICES];

static size_t home(uint64_t number, size_t room) {
    return (size_t)(((number * 0x9E3779B97F4A7C15u >> 32) * room) >> 32);
}

static size_t after(size_t slot) {
    return slot + 1 < capacity ? slot + 1 : 0;
}

static size_t distance(size_t from, size_t to) {
    return to >= from ? to - from : to + capacity - from;
}

/* Where the page stands, or the empty slot where it would. */
static size_t small_pages_probe(uint64_t number) {
    size_t slot = home(number, capacity);
    while (slots[slot] != 0 && slots[slot] >> COUNT_BITS != number) slot = after(slot);
    return slot;
}

static bool small_pages_make_room(void) {
    size_t old_capacity = capacity, room = capacity ? capacity / 2 * 3 : FIRST_CAPACITY;
    uint64_t *old = slots;
    if (capacity > 0 && count + 2 <= capacity / 4 * 3) return true; /* an allocation can touch two pages */
    void *grown =
        mmap(NULL, room * sizeof *slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED) return false;
    slots = grown;
    capacity = room;
    for (size_t slot = 0; slot < old_capacity; slot++)
        if (old[slot] != 0) slots[small_pages_probe(old[slot] >> COUNT_BITS)] = old[slot];
    if (old) munmap(old, old_capacity * sizeof *old);
    return true;
}

static void empty_slot(size_t slot) {
    for (size_t next = after(slot); slots[next] != 0; next = after(next)) {
        if (distance(home(slots[next] >> COUNT_BITS, capacity), next) < distance(slot, next)) continue;
        slots[slot] = slots[next];
        slot = next;
    }
    slots[slot] = 0;
    count--;
}

static uint64_t in_units(uint64_t size) {
    return (size + UNIT - 1) / UNIT * UNIT;
}

bool small_pages_enter(int device, uint64_t address, uint64_t size, uint64_t *taken) {
    *taken = size > LARGEST_SMALL ? size : 0;
    if (size > LARGEST_SMALL) return true;
    spinlock_lock(&lock);
    bool room = small_pages_make_room();
    for (uint64_t page = address >> SHIFT; room && page <= (address + size - 1) >> SHIFT; page++) {
        size_t slot = small_pages_probe(page);
        if (slots[slot] == 0) {
            slots[slot] = page << COUNT_BITS;
            count++;
            *taken += PAGE_OF_DEVICE;
        }
        slots[slot]++;
    }
    if (room) {
        devices[device].pages += *taken;
        devices[device].used += in_units(size);
    }
    spinlock_unlock(&lock);
    return room;
}

uint64_t small_pages_leave(int device, uint64_t address, uint64_t size) {
    uint64_t given = 0;
    if (size > LARGEST_SMALL) return size;
    spinlock_lock(&lock);
    for (uint64_t page = address >> SHIFT; page <= (address + size - 1) >> SHIFT; page++) {
        size_t slot = small_pages_probe(page);
        if ((--slots[slot] & ((1u << COUNT_BITS) - 1)) != 0) continue;
        empty_slot(slot);
        given += PAGE_OF_DEVICE;
    }
    devices[device].pages -= given;
    devices[device].used -= in_units(size);
    spinlock_unlock(&lock);
    return given;
}

bool small_pages_hold(uint64_t address, uint64_t size) {
    spinlock_lock(&lock);
    bool there = capacity > 0;
    for (uint64_t page = address >> SHIFT; there && page <= (address + size - 1) >> SHIFT; page++)
        there = slots[small_pages_probe(page)] != 0;
    spinlock_unlock(&lock);
    return there;
}

bool small_pages_could_hold(int device, uint64_t size) {
    spinlock_lock(&lock);
    bool holds = devices[device].pages - devices[device].used >= in_units(size);
    spinlock_unlock(&lock);
    return holds;
}

void small_pages_reset(void) {
    if (slots) munmap(slots, capacity * sizeof *slots);
    lock = (struct spinlock){0};
    slots = NULL;
    capacity = count = 0;
    memset(devices, 0, sizeof devices);
}
