/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool: host memory for copies of pieces, in a named file that outlives the porter, and beside it an
 * index that says whose copy lies in each unit of 2 MiB. A copy counts once all its units are marked
 * complete; a porter that is killed at any instant leaves whole copies or none.
 *
 * All functions may be called by any thread; the pool has one lock.
 */
#ifndef PORTER_POOL_H
#define PORTER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convgpu/carrier.h"

#define POOL_UNIT  CONVGPU_PIECE_GRANULE
#define POOL_PARTS (CONVGPU_PIECE_SIZE / POOL_UNIT) /* units of the largest piece */

/* A process, across porters. */
struct owner {
    uint32_t pid;
    uint64_t started; /* clock ticks since boot */
};

struct copy_name {
    struct owner owner;
    uint8_t device[16];
    uint64_t piece;
};

/* A copy of a piece, complete or on its way. */
struct copy {
    struct copy_name name;
    uint64_t size;
    uint64_t asserted; /* number of the carrier on which the process last said that it needs it */
    bool complete;
    bool busy;   /* a copy engine works on it */
    bool doomed; /* to be freed when it is not busy any more */
    uint32_t unit[POOL_PARTS];
    struct copy *next; /* in its bucket */
};

/* Opens or creates the files `path` and `path`.index, and finds the copies in them. False: it logged why. */
bool pool_open(const char *path);

/* Returns the process of each copy, to be freed by the caller; a process may come more than once. */
struct owner *pool_owners(size_t *count);

/* Returns an incomplete, busy copy of `size` bytes, or NULL without room, or if the process had more than
 * `most` bytes of copies then. An older complete copy of the same name is replaced. One that is busy is
 * refused as well: the process asks twice for the same piece. */
struct copy *pool_begin_out(const struct copy_name *name, uint64_t size, uint64_t most, uint64_t carrier);

/* Returns the complete copy of that name and size, and makes it busy; or NULL. */
struct copy *pool_begin_in(const struct copy_name *name, uint64_t size, uint64_t carrier);

/* Ends what begin_out began. `complete`: its contents are there. */
void pool_end_out(struct copy *copy, bool complete);

/* Ends what begin_in began. `drop`: the process has its contents. */
void pool_end_in(struct copy *copy, bool drop);

/* Notes that the process needs the copy, and says whether it is there. */
bool pool_assert(const struct copy_name *name, uint64_t size, uint64_t carrier);

/* Frees one copy; returns its size, 0 without one. */
uint64_t pool_forget(const struct copy_name *name);

/* Frees all copies of a process that were not asserted on this carrier (0: all); returns their size. */
uint64_t pool_sweep(struct owner owner, uint64_t carrier);

/* Returns the host address of unit `index` of a copy. */
void *pool_address(const struct copy *copy, unsigned index);

/* Returns how many units from `index` on lie in one run that one copy operation may cover. */
unsigned pool_run(const struct copy *copy, unsigned index);

/* Asks for `size` bytes of registered memory; a thread of the pool makes them, or gives them back. */
void pool_resize(uint64_t size);

struct pool_figures {
    uint64_t size, used;
    uint32_t error; /* why it does not grow: errno, or the driver's error; 0: it may */
};
struct pool_figures pool_figures(void);

#endif
