/* SPDX-License-Identifier: Apache-2.0 */
#include "pools/pieces.h"

enum { PIECE = 32 << 20 };

/* By address, and the number of the pool below; `value` is how many allocations of the pool lie there. If the
 * driver's pieces begin elsewhere than at multiples of their size, two pools may have the same one here. */
static struct allocations table = ALLOCATIONS_INITIALIZER;

/* For allocations_visit(): how many allocations of a pool lie in a piece; or any piece of it. */
struct search {
    uint64_t pool, piece, found;
};

static uint64_t name_of(uint64_t address, uint64_t pool) {
    return address / PIECE * PIECE | pool % PIECE;
}

static void count_there(const struct allocation *entry, void *argument) {
    struct search *search = argument;
    bool there = entry->address < search->piece + PIECE && entry->address + entry->size > search->piece;
    if (entry->value == search->pool && there) search->found++;
}

static void find_any(const struct allocation *entry, void *argument) {
    struct search *search = argument;
    if (entry->address % PIECE == search->pool % PIECE) search->found = entry->address;
}

void pieces_stay(struct pieces *pieces, const struct allocation *entry, struct allocations *live) {
    for (uint64_t at = entry->address / PIECE * PIECE; at < entry->address + entry->size; at += PIECE) {
        struct search search = {.pool = entry->value, .piece = at};
        struct allocation piece, replaced;
        if (allocations_find(&table, name_of(at, entry->value), &piece)) continue;
        allocations_visit(live, count_there, &search);
        piece = (struct allocation){.address = name_of(at, entry->value), .value = search.found};
        if (allocations_insert(&table, piece, &replaced)) pieces->size += PIECE;
    }
}

static void change_one(struct pieces *pieces, uint64_t name, int change) {
    struct allocation piece, replaced;
    if (!allocations_remove(&table, name, &piece)) return;
    if (piece.value == 0) pieces->idle -= PIECE;
    piece.value += (uint64_t)(int64_t)change;
    if (piece.value == 0) pieces->idle += PIECE;
    (void)allocations_insert(&table, piece, &replaced);
}

void pieces_change(struct pieces *pieces, const struct allocation *entry, int change) {
    if (pieces->size == 0) return;
    for (uint64_t at = entry->address / PIECE * PIECE; at < entry->address + entry->size; at += PIECE)
        change_one(pieces, name_of(at, entry->value), change);
}

void pieces_forget(struct pieces *pieces, uint64_t pool) {
    struct search search = {.pool = pool};
    struct allocation entry;
    for (; allocations_visit(&table, find_any, &search), search.found != 0; search.found = 0)
        (void)allocations_remove(&table, search.found, &entry);
    *pieces = (struct pieces){0};
}

void pieces_reset(void) {
    allocations_reset(&table);
}
