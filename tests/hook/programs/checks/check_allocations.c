/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit test of hook/src/accounting/allocations.c against a plain model. Says what failed, and exits 1.
 */
#include "accounting/allocations.h"
#include "base/coarse_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESSES = 5000, CONTEXTS = 3, TURNS = 400000 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

_Atomic uint32_t coarse_clock; /* connection.c's */

static struct allocations table = ALLOCATIONS_INITIALIZER;
static struct allocation model[ADDRESSES];
static size_t live;
static uint64_t seed = 88172645463325252u;

static uint64_t number(uint64_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static uint64_t address_of(size_t index) {
    return 0x7f0000000000 + (index % 7 << 32) + index * 512;
}

static bool same(struct allocation one, struct allocation other) {
    return one.address == other.address && one.size == other.size && one.device == other.device &&
           one.context == other.context && one.dying == other.dying;
}

static uint64_t context_handle(void) {
    return 0x5000 + number(CONTEXTS) * 16;
}

static void insert_one(size_t index) {
    struct allocation replaced, entry = {.address = address_of(index),
                                         .size = 512 + number(UINT64_C(1) << 50),
                                         .device = number(63),
                                         .context = context_handle() >> 1};
    CHECK(allocations_insert(&table, entry, &replaced));
    CHECK(same(replaced, model[index]));
    live += model[index].address == 0;
    model[index] = entry;
}

static void remove_one(size_t index) {
    struct allocation removed, seen;
    bool there = allocations_find(&table, address_of(index), &seen);
    CHECK(there == (model[index].address != 0));
    if (there) CHECK(same(seen, model[index]));
    bool found = allocations_remove(&table, address_of(index), &removed);
    CHECK(found == (model[index].address != 0));
    if (!found) return;
    CHECK(same(removed, model[index]));
    model[index] = (struct allocation){0};
    live--;
}

/* Marks a context and drops or unmarks it; what was entered in between stays. */
static void end_context(bool ends) {
    uint64_t context = context_handle(), sizes[63] = {0}, expected[63] = {0};
    allocations_mark(&table, context);
    for (size_t index = 0; index < ADDRESSES; index++)
        if (model[index].address && model[index].context == context >> 1) model[index].dying = 1;
    insert_one(number(ADDRESSES));
    for (size_t index = 0; index < ADDRESSES; index++) {
        if (!model[index].dying) continue;
        if (ends) {
            expected[model[index].device] += model[index].size;
            model[index] = (struct allocation){0};
            live--;
        } else {
            model[index].dying = 0;
        }
    }
    if (ends)
        allocations_drop(&table, context, allocations_add_size, sizes);
    else
        allocations_unmark(&table, context);
    CHECK(memcmp(sizes, expected, sizeof sizes) == 0);
}

static void compare(void) {
    size_t found = 0;
    CHECK(table.count == live);
    for (size_t slot = 0; slot < table.capacity; slot++) found += table.slots[slot].address != 0;
    CHECK(found == live);
}

/* The promise of allocations.h: never more than 56 bytes per live entry while the table grows, but for odd
 * ends. */
static void check_density(void) {
    allocations_reset(&table);
    for (size_t index = 1; index < 100000; index++) {
        struct allocation replaced, entry = {.address = index * 512, .size = 512};
        CHECK(allocations_insert(&table, entry, &replaced));
        CHECK(index < 144 || table.capacity * sizeof *table.slots <= 57 * index);
    }
    CHECK(table.count == 99999);
}

int main(void) {
    struct allocation removed;
    CHECK(sizeof(struct allocation) == 28);
    CHECK(!allocations_remove(&table, 512, &removed));
    CHECK(!allocations_remove(&table, 0, &removed));
    for (int turn = 0; turn < TURNS; turn++) {
        size_t index = number(ADDRESSES);
        if (number(1000) == 0)
            end_context(number(2));
        else if (number(2))
            insert_one(index);
        else
            remove_one(index);
        if (turn % 1000 == 0) compare();
    }
    for (size_t index = 0; index < ADDRESSES; index++) remove_one(index);
    CHECK(table.count == 0);
    check_density();
    return 0;
}
