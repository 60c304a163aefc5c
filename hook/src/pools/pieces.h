/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a pool behind a pointer that was exported is never given back, but used again (seen on an H200):
 * each piece of 32 MiB that it touches stays until the pool is destroyed and nobody has a descriptor of it.
 * While nothing lies in it, the pool has not reserved it, and the driver counts it for nobody. `lock` of
 * pool.c guards all of this.
 */
#ifndef CONVGPU_PIECES_H
#define CONVGPU_PIECES_H

#include "accounting/allocations.h"

/* Those of one pool, in bytes. */
struct pieces {
    uint64_t size;
    uint64_t idle; /* of those in which nothing lies */
};

/* The pieces that an allocation touches stay from now on. `live`: those of all pools, `value` is the pool's
 * number. */
void pieces_stay(struct pieces *pieces, const struct allocation *entry, struct allocations *live);

/* An allocation of the pool was made (+1) or has ended (-1). */
void pieces_change(struct pieces *pieces, const struct allocation *entry, int change);

/* The pool of that number has no pieces any more. */
void pieces_forget(struct pieces *pieces, uint64_t pool);

void pieces_reset(void);

#endif
