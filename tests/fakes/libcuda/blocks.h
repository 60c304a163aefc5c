/* SPDX-License-Identifier: Apache-2.0
 *
 * The live allocations of a process: every operation takes constant time, however many there are.
 * Addresses are numbers that look like device addresses; nothing is mapped there.
 */
#ifndef SIMULATED_BLOCKS_H
#define SIMULATED_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCKS_FIRST_ADDRESS UINT64_C(0x7f0000000000)

struct context;

struct block {
    uint64_t address; /* 512-byte aligned; 2 MiB aligned from 1 MiB on */
    uint64_t size;    /* as asked for */
    uint64_t counted; /* bytes of the device that it takes */
    struct context *context;
    unsigned order;                /* its address range is 2^order bytes */
    struct block *in_bucket;       /* next with the same hash; or next spare one of the same order */
    struct block *previous, *next; /* of the same context */
};

struct blocks {
    struct block **bucket; /* 2^bits of them, at least as many as live blocks */
    unsigned bits;
    size_t count;
    uint64_t next_address;
    struct block *spare[64]; /* by order: freed blocks, whose addresses are used again */
    uint64_t steps;          /* links followed so far, so that a test can count instead of timing */
};

/* Bytes of the device that an allocation takes: 2 MiB units from 1 MiB on, 512 B units below. Returns 0 if no
 * device could hold it. */
uint64_t blocks_counted(uint64_t size);

/* Adds a live block of the context's list `head`. Returns NULL if the process has no memory left. */
struct block *blocks_add(struct blocks *blocks, uint64_t size, struct context *context, struct block **head);

/* The live block that starts at the address, or NULL. */
struct block *blocks_find(struct blocks *blocks, uint64_t address);

/* Ends a live block; its address may come again. */
void blocks_remove(struct blocks *blocks, struct block *block, struct block **head);

#endif
