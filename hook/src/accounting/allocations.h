/* SPDX-License-Identifier: Apache-2.0
 *
 * A table from a driver's address to what was charged for it: live allocations by device pointer, contexts by
 * handle. Private to the process, open addressing in anonymous memory (malloc may be the program's own, and
 * may itself call CUDA), so every operation costs O(1) on average whatever the number of entries; 28 bytes
 * each at a load of at least 1/2, hence never more than 56 bytes per live entry once the first page is full.
 */
#ifndef CONVGPU_ALLOCATIONS_H
#define CONVGPU_ALLOCATIONS_H

#include "base/spinlock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allocation {
    uint64_t address;    /* never 0 in the table */
    uint64_t size : 54;  /* bytes charged; of a small one, bytes that it takes of its pages */
    uint64_t form : 2;   /* which of the family's calls made it */
    uint64_t device : 6; /* index of account.h */
    uint64_t hidden : 1; /* not in the driver's count of the process (context_growth.h) */
    uint64_t shared : 1; /* may live on when all that we know of is gone (virtual_memory.c) */
    union {
        struct {
            uint64_t context : 63; /* handle of the context that it dies with, shifted right by one */
            uint64_t dying : 1;    /* its context is being destroyed */
        };
        uint64_t value; /* in a table of things that no context takes along: what its owner likes */
    };
    uint32_t made; /* seconds of coarse_clock.h, written by allocations_insert() unless they are there */
} __attribute__((packed, aligned(4)));
_Static_assert(sizeof(struct allocation) == 28, "what allocations.h promises");

struct allocations {
    struct spinlock
        lock; /* innermost: nothing that takes a lock is called while it is taken, but kept_charge() */
    struct allocation *slots;
    size_t capacity; /* 0 before the first entry */
    size_t count;
};
#define ALLOCATIONS_INITIALIZER {.slots = NULL}

/* Enters `entry`. An entry that is already there under the address belongs to a context that has died in
 * between: it is replaced and returned in *replaced (else replaced->address is 0). False: no memory. */
bool allocations_insert(struct allocations *table, struct allocation entry, struct allocation *replaced);

/* Takes the entry of `address` out. False when it is not there. */
bool allocations_remove(struct allocations *table, uint64_t address, struct allocation *removed);

/* Sets `shared` of the entry of `address`. False when it is not there. */
bool allocations_share(struct allocations *table, uint64_t address);

/* Copies the entry of `address`. False when it is not there. */
bool allocations_find(struct allocations *table, uint64_t address, struct allocation *found);

/* Destroying a context takes three steps, because the driver may hand its addresses out again before its call
 * returns, and because the call may fail: mark what would die; then, after the call, drop what is still
 * marked (each entry is shown to `each`, if there is one, before it is gone; the table is locked meanwhile)
 * or unmark it. */
void allocations_mark(struct allocations *table, uint64_t context);
void allocations_unmark(struct allocations *table, uint64_t context);
typedef void allocations_each(const struct allocation *entry, void *argument);
void allocations_drop(struct allocations *table, uint64_t context, allocations_each *each, void *argument);

/* Shows every entry to `each`; the table is locked meanwhile. */
void allocations_visit(struct allocations *table, allocations_each *each, void *argument);

/* In place of a context: of all. */
#define ALLOCATIONS_ANY UINT64_MAX

/* For allocations_drop: adds what was charged to an array of sizes by device. */
void allocations_add_size(const struct allocation *entry, void *sizes);

/* Empties the table and renews its lock: for the child of a fork, where no other thread is. */
void allocations_reset(struct allocations *table);

#endif
