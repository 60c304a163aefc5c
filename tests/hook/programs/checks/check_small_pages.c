/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit test of hook/src/accounting/small_pages.c against a plain model: an array of counts. Says what failed,
 * and exits 1.
 */
#include "accounting/small_pages.h"

#include <stdio.h>
#include <stdlib.h>

enum { PAGES = 3000, ALLOCATIONS = 20000, TURNS = 600000, UNIT = 512 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static const uint64_t first = UINT64_C(0x7f0000000000);
static unsigned counts[PAGES + 1];
static struct {
    uint64_t address, size;
} live[ALLOCATIONS];
static uint64_t seed = 88172645463325252u, held, used;

static uint64_t number(uint64_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* Counts the model's pages by `step`; returns bytes of pages that became used or unused. */
static uint64_t count(uint64_t address, uint64_t size, int step) {
    uint64_t changed = 0;
    for (uint64_t page = (address - first) >> 21; page <= (address + size - 1 - first) >> 21; page++) {
        if (counts[page] == (step > 0 ? 0u : 1u)) changed += PAGE_OF_DEVICE;
        counts[page] += (unsigned)step;
    }
    return changed;
}

static void enter(size_t index) {
    uint64_t taken, size = 1 + number(number(2) ? 4096 : LARGEST_SMALL);
    uint64_t address = first + number((uint64_t)PAGES * PAGE_OF_DEVICE - LARGEST_SMALL) / UNIT * UNIT;
    bool there = true;
    for (uint64_t page = (address - first) >> 21; page <= (address + size - 1 - first) >> 21; page++)
        there = there && counts[page] > 0;
    CHECK(small_pages_hold(address, size) == there);
    CHECK(small_pages_enter(5, address, size, &taken));
    CHECK(taken == count(address, size, 1));
    held += taken;
    used += (size + UNIT - 1) / UNIT * UNIT;
    live[index].address = address;
    live[index].size = size;
}

static void leave(size_t index) {
    uint64_t given = small_pages_leave(5, live[index].address, live[index].size);
    CHECK(given == count(live[index].address, live[index].size, -1));
    held -= given;
    used -= (live[index].size + UNIT - 1) / UNIT * UNIT;
    live[index].address = 0;
}

int main(void) {
    CHECK(!small_pages_could_hold(5, 1) && !small_pages_hold(first, 1));
    for (int turn = 0; turn < TURNS; turn++) {
        size_t index = number(turn / 100000 % 2 ? 200 : ALLOCATIONS); /* many, few, many */
        if (live[index].address)
            leave(index);
        else
            enter(index);
        if (held > used)
            CHECK(small_pages_could_hold(5, held - used) && !small_pages_could_hold(5, held - used + 1));
    }
    for (size_t index = 0; index < ALLOCATIONS; index++)
        if (live[index].address) leave(index);
    CHECK(held == 0 && used == 0 && !small_pages_could_hold(5, 1));
    small_pages_reset();
    return 0;
}
