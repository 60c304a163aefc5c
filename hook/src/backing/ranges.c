/* SPDX-License-Identifier: Apache-2.0 */
#include "backing/ranges.h"

#include "base/fork_reset.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_ROOM = 64, MARKS = 64 }; /* ranges; bits of a word */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *table; /* the four are guarded by `lock` */
static size_t room, count;
static uint64_t last_id;
static _Atomic size_t seen_count;

void ranges_lock(void) {
    pthread_mutex_lock(&lock);
}

void ranges_unlock(void) {
    pthread_mutex_unlock(&lock);
}

static bool make_room(void) {
    if (count < room) return true;
    size_t wider = room ? room * 2 : FIRST_ROOM, row = sizeof *table;
    void *grown = table ? mremap(table, room * row, wider * row, MREMAP_MAYMOVE)
                        : mmap(NULL, wider * row, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED) return false;
    table = grown;
    room = wider;
    return true;
}

/* The first range that ends behind the address. */
static size_t place_of(uint64_t address) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table[middle].address + table[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static size_t marks_size(const struct range *range) {
    return (range_pieces(range) + MARKS - 1) / MARKS * sizeof(uint64_t);
}

static uint64_t *marks_of(struct range *range) {
    return range->marks ? range->marks : &range->few_marks;
}

bool ranges_insert(const struct range *range) {
    struct range entry = *range;
    entry.marks = NULL;
    entry.few_marks = 0;
    if (!make_room()) return false;
    if (range_pieces(&entry) > MARKS) {
        void *marks =
            mmap(NULL, marks_size(&entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (marks == MAP_FAILED) return false;
        entry.marks = marks;
    }
    entry.id = ++last_id;
    size_t place = place_of(entry.address);
    memmove(&table[place + 1], &table[place], (count - place) * sizeof *table);
    table[place] = entry;
    atomic_store(&seen_count, ++count);
    return true;
}

struct range *ranges_at(uint64_t address) {
    size_t place = place_of(address);
    return place < count && table[place].address <= address ? &table[place] : NULL;
}

struct range *ranges_find(uint64_t address) {
    struct range *range = ranges_at(address);
    return range && range->address == address ? range : NULL;
}

struct range *ranges_after(uint64_t address) {
    size_t place = place_of(address);
    if (place < count && table[place].address <= address) place++;
    return place < count ? &table[place] : NULL;
}

void ranges_remove(struct range *range) {
    size_t place = (size_t)(range - table);
    if (range->marks) munmap(range->marks, marks_size(range));
    memmove(range, range + 1, (count - place - 1) * sizeof *table);
    atomic_store(&seen_count, --count);
}

void ranges_rename(struct range *range) {
    range->id = ++last_id;
}

bool ranges_is_empty(void) {
    return atomic_load_explicit(&seen_count, memory_order_relaxed) == 0;
}

uint32_t range_pieces(const struct range *range) {
    return (uint32_t)((range->size + CONVGPU_PIECE_SIZE - 1) / CONVGPU_PIECE_SIZE);
}

uint64_t range_piece(const struct range *range, uint32_t index, uint64_t *size) {
    uint64_t offset = index * CONVGPU_PIECE_SIZE, left = range->size - offset;
    *size = left < CONVGPU_PIECE_SIZE ? left : CONVGPU_PIECE_SIZE;
    return range->address + offset;
}

bool range_is_out(const struct range *range, uint32_t index) {
    const uint64_t *marks = range->marks ? range->marks : &range->few_marks;
    return marks[index / MARKS] >> index % MARKS & 1;
}

void range_set_out(struct range *range, uint32_t index, bool out) {
    if (range_is_out(range, index) == out) return;
    marks_of(range)[index / MARKS] ^= UINT64_C(1) << index % MARKS;
    range->out += out ? 1 : -1u;
}

uint64_t range_out_bytes(const struct range *range) {
    uint64_t bytes = 0, size;
    for (uint32_t index = 0; range->out > 0 && index < range_pieces(range); index++) {
        (void)range_piece(range, index, &size);
        if (range_is_out(range, index)) bytes += size;
    }
    return bytes;
}

void ranges_reset(void) {
    for (size_t place = 0; place < count; place++)
        if (table[place].marks) munmap(table[place].marks, marks_size(&table[place]));
    if (table) munmap(table, room * sizeof *table);
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    table = NULL;
    room = count = 0;
    seen_count = 0;
}
RESET_IN_CHILD(ranges_reset);
