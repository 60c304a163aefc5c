/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory taken in chunks and handed out in pieces of 512 bytes, as pools do. A chunk goes back to the
 * device whole, and only when nothing of it is in use. driver.mutex held, everywhere.
 */
#ifndef SIMULATED_ARENA_H
#define SIMULATED_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "libcuda/memory/blocks.h"

#define SLAB (UINT64_C(2) << 20) /* step of the arena for small allocations */

#define ARENA_HOST (-1) /* in place of a device: memory of the host, which no device counts */

/* Adjacent pieces of a chunk that nobody uses. */
struct gap {
    uint64_t address, size;
    struct gap *next; /* the next higher one; never adjacent */
};

struct chunk {
    struct arena *arena;
    struct block *range; /* its addresses */
    uint64_t size;       /* bytes of the device that it takes */
    uint64_t used;
    uint64_t late;      /* the order of the last free in a stream that nobody synchronised with; 0: none */
    const void *stream; /* of that free */
    bool exported;      /* others may keep it (exports.h) */
    bool parks;         /* it stays for the arena's next pieces then */
    bool parked;        /* nothing is in use, and the device has it still */
    int reference;      /* of the process, */
    uint32_t row;       /* and the row of simulated/exports.h */
    struct gap *gaps;   /* in ascending order */
    struct chunk *previous, *next;
};

struct arena {
    int device;        /* or ARENA_HOST */
    uint64_t step;     /* bytes of a chunk, unless what is asked for is larger */
    uint64_t limit;    /* bytes that it may reserve; 0: as many as the device has */
    uint64_t reserved; /* bytes of all chunks */
    uint64_t used;     /* bytes handed out, each piece rounded to 512 */
    uint64_t most_reserved, most_used;
    struct chunk *chunks; /* newest first */
};

/* Hands out a piece: its address, and in *chunk where it lies. Returns 0 if neither the chunks nor the device
 * have room. */
uint64_t arena_take(struct arena *arena, uint64_t size, struct chunk **chunk);

/* Takes a piece back. The chunk stays reserved. */
void arena_give(struct chunk *chunk, uint64_t address, uint64_t size);

/* Gives unused chunks back to the device (but late ones), as long as `keep` bytes stay reserved. */
void arena_trim(struct arena *arena, uint64_t keep);

/* From now on others may refer to the chunk. False if the process cannot say so. */
bool arena_export(struct chunk *chunk);

/* Ends an arena of which nothing is in use: exported chunks stay for others. */
void arena_end(struct arena *arena);

/* Bytes of the arena that a piece takes. Returns 0 if no device could hold it. */
uint64_t arena_counted(uint64_t size);

#endif
