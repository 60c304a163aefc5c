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

#define BLOCKS_FIRST_ADDRESS UINT64_C(0x100000000000) /* far from what Linux maps */

enum block_kind {
    BLOCK_MEMORY = 0, /* has its own pages; owner: struct context */
    BLOCK_POOL,       /* lies in a chunk of a pool's arena; owner: struct pool */
    BLOCK_GRAPH,      /* allocated by a graph that does not free it; owner: struct node */
    BLOCK_IMPORTED,   /* memory of another process; owner: struct context */
    BLOCK_MAPPING,    /* physical memory at reserved addresses; owner: struct physical */
};

struct chunk;
struct managed;

struct block {
    uint64_t address; /* 512-byte aligned; 2 MiB aligned from 1 MiB on */
    uint64_t size;    /* as asked for */
    uint64_t counted; /* bytes of the device, or of its chunk, that it takes */
    enum block_kind kind;
    struct managed *pages; /* of cuMemAllocManaged: where they are (managed.h); NULL elsewhere */
    int access;            /* of a mapping: CU_MEM_ACCESS_FLAGS_PROT_* */
    uint64_t late;         /* as of a chunk: freed, but the device's until then */
    const void *stream;
    struct block *next_late;
    void *owner;                   /* whose list it is in */
    struct chunk *chunk;           /* that its address lies in, or NULL */
    unsigned order;                /* its address range is 2^order bytes; 0: the range is another's */
    uint64_t serial;               /* unique in the process */
    uint64_t imported_serial;      /* of an import: the serial at its owner, */
    uint64_t imported_from;        /* and which process that is */
    bool exported;                 /* others may have a descriptor that keeps its memory: */
    int reference;                 /* the process's own one, */
    uint32_t row;                  /* and the row of simulated/exports.h */
    struct block *low_range;       /* legacy.c's; NULL elsewhere */
    unsigned references;           /* of an import: how often it is open */
    struct block *in_bucket;       /* next with the same hash; or next spare one of the same order */
    struct block *previous, *next; /* of the same owner */
};

struct blocks {
    struct block **bucket; /* 2^bits of them, at least as many as live blocks */
    unsigned bits;
    size_t count;
    uint64_t next_address, last_serial;
    struct block *spare[64]; /* by order: freed blocks, whose addresses are used again */
    uint64_t steps;          /* links followed so far, so that a test can count instead of timing */
};

/* The live one that the address lies in, or NULL. Takes as long as there are blocks. */
struct block *blocks_containing(const struct blocks *blocks, uint64_t address);

/* Bytes of the device that an allocation takes: 2 MiB units from 1 MiB on, 512 B units below. Returns 0 if no
 * device could hold it. */
uint64_t blocks_counted(uint64_t size);

/* A range of addresses for `size` bytes, in a block that is not live. Returns NULL if the process has no
 * memory left. */
struct block *blocks_take_range(struct blocks *blocks, uint64_t size);

/* Ends such a block; its addresses may come again. */
void blocks_give_range(struct blocks *blocks, struct block *block);

/* Adds a live block to its owner's list `head`. Returns NULL if the process has no memory left. */
struct block *blocks_add(struct blocks *blocks, uint64_t size, void *owner, struct block **head);

/* The same, but at an address that lies in a range taken for something else. */
struct block *blocks_add_at(struct blocks *blocks, uint64_t address, uint64_t size, void *owner,
                            struct block **head);

/* The live block that starts at the address, or NULL. */
struct block *blocks_find(struct blocks *blocks, uint64_t address);

/* Ends a live block; its address may come again. */
void blocks_remove(struct blocks *blocks, struct block *block, struct block **head);

#endif
