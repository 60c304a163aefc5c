/* SPDX-License-Identifier: Apache-2.0 */
#include "libcuda/memory/arena.h"

#include <stdlib.h>
#include <unistd.h>

#include "libcuda/driver.h"
#include "libcuda/memory/tables.h"
#include "simulated/exports.h"

#define PIECE      UINT64_C(512)
#define LARGE_PAGE (UINT64_C(2) << 20)

uint64_t arena_counted(uint64_t size) {
    return size > UINT64_MAX - PIECE ? 0 : (size + PIECE - 1) / PIECE * PIECE;
}

static struct gap *make_gap(uint64_t address, uint64_t size, struct gap *next) {
    struct gap *gap = malloc(sizeof *gap);
    if (gap == NULL) abort(); /* a free must not fail, and this is a test double */
    *gap = (struct gap){address, size, next};
    return gap;
}

static bool reserve(struct arena *arena, uint64_t size) {
    if (arena->limit != 0 && (size > arena->limit || arena->reserved > arena->limit - size)) return false;
    bool taken = arena->device == ARENA_HOST ? tables_take(0, size / TABLE_OF_HOST * TABLE)
                                             : device_take(arena->device, size);
    if (!taken) return false;
    arena->reserved += size;
    if (arena->reserved > arena->most_reserved) arena->most_reserved = arena->reserved;
    return true;
}

static void unreserve(struct arena *arena, uint64_t size) {
    if (arena->device == ARENA_HOST)
        tables_give(0, size / TABLE_OF_HOST * TABLE); /* chunks are multiples of that */
    else
        device_give(arena->device, size);
    arena->reserved -= size;
}

static struct chunk *add_chunk(struct arena *arena, uint64_t size) {
    if (size > UINT64_MAX - LARGE_PAGE) return NULL;
    uint64_t whole = size <= arena->step ? arena->step : (size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    if (!reserve(arena, whole)) return NULL;
    struct chunk *chunk = malloc(sizeof *chunk);
    struct block *range = blocks_take_range(&driver.blocks, whole);
    if (chunk == NULL || range == NULL) abort();
    *chunk = (struct chunk){.arena = arena, .range = range, .size = whole, .next = arena->chunks};
    chunk->gaps = make_gap(range->address, whole, NULL);
    if (arena->chunks != NULL) arena->chunks->previous = chunk;
    arena->chunks = chunk;
    return chunk;
}

/* Takes the piece from the first gap that holds it. Returns 0 if none does. */
static uint64_t take_from(struct chunk *chunk, uint64_t size) {
    if (chunk->size - chunk->used < size) return 0;
    for (struct gap **link = &chunk->gaps; *link != NULL; link = &(*link)->next) {
        struct gap *gap = *link;
        if (gap->size < size) continue;
        uint64_t address = gap->address;
        gap->address += size;
        gap->size -= size;
        if (gap->size == 0) {
            *link = gap->next;
            free(gap);
        }
        chunk->used += size;
        if (chunk->parked) {
            export_return(&driver.state, chunk->row);
            chunk->arena->reserved += chunk->size;
            chunk->parked = false;
        }
        return address;
    }
    return 0;
}

uint64_t arena_take(struct arena *arena, uint64_t size, struct chunk **chunk) {
    uint64_t address = 0;
    for (*chunk = arena->chunks; *chunk != NULL; *chunk = (*chunk)->next) {
        address = take_from(*chunk, size);
        if (address != 0) break;
    }
    if (address == 0) {
        *chunk = add_chunk(arena, size);
        if (*chunk == NULL) return 0;
        address = take_from(*chunk, size);
    }
    arena->used += size;
    if (arena->used > arena->most_used) arena->most_used = arena->used;
    return address;
}

void arena_give(struct chunk *chunk, uint64_t address, uint64_t size) {
    struct gap *before = NULL, **link = &chunk->gaps;
    for (; *link != NULL && (*link)->address < address; link = &(*link)->next) before = *link;
    struct gap *gap = *link;
    if (gap != NULL && address + size == gap->address) {
        gap->address = address;
        gap->size += size;
    } else {
        gap = *link = make_gap(address, size, gap);
    }
    if (before != NULL && before->address + before->size == gap->address) {
        before->size += gap->size;
        before->next = gap->next;
        free(gap);
    }
    chunk->used -= size;
    chunk->arena->used -= size;
}

bool arena_export(struct chunk *chunk) {
    if (chunk->exported) return true;
    chunk->row =
        export_enter(&driver.state, driver.row[chunk->arena->device], chunk->size, &chunk->reference);
    chunk->exported = chunk->row != NOT_EXPORTED;
    return chunk->exported;
}

static void park(struct chunk *chunk) {
    export_park(&driver.state, chunk->row);
    chunk->arena->reserved -= chunk->size;
    chunk->parked = true;
}

static void remove_chunk(struct chunk *chunk) {
    struct arena *arena = chunk->arena;
    if (chunk->parked) {
        close(chunk->reference);
        export_closed(&driver.state, chunk->row);
    } else if (chunk->exported) {
        close(chunk->reference);
        export_leave(&driver.state, chunk->row);
        arena->reserved -= chunk->size;
    } else {
        unreserve(arena, chunk->size);
    }
    if (chunk->next != NULL) chunk->next->previous = chunk->previous;
    if (chunk->previous != NULL) {
        chunk->previous->next = chunk->next;
    } else {
        arena->chunks = chunk->next;
    }
    blocks_give_range(&driver.blocks, chunk->range);
    free(chunk->gaps); /* one, the whole chunk */
    free(chunk);
}

void arena_trim(struct arena *arena, uint64_t keep) {
    for (struct chunk *chunk = arena->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        bool spare = chunk->used == 0 && chunk->late == 0 && !chunk->parked;
        if (!spare || arena->reserved - chunk->size < keep) continue;
        if (chunk->parks)
            park(chunk);
        else
            remove_chunk(chunk);
    }
}

void arena_end(struct arena *arena) {
    arena_trim(arena, 0);
    while (arena->chunks != NULL) remove_chunk(arena->chunks);
}
