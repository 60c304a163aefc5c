/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of cuMemAlloc that was freed in a stream is the device's again after a synchronisation with that
 * stream (seen on an H200: neither a query nor another stream gives it back). Until then it stays charged.
 */
#ifndef CONVGPU_DEFERRED_FREE_H
#define CONVGPU_DEFERRED_FREE_H

#include "accounting/allocations.h"
#include "tables/driver.h"

/* Enters what was freed in the stream; `replaced` as in allocations_insert. False: no memory for it. */
bool deferred_free_enter(struct allocation entry, CUstream stream, struct allocation *replaced);

/* Whether anything was ever freed in a stream; takes no lock. */
bool deferred_free_is_used(void);

/* After a synchronisation, with a stream or with all: shows each entry that has ended to `each`, with the
 * table's lock held, and drops it. */
void deferred_free_end(CUstream stream, allocations_each *each, void *argument);
void deferred_free_end_all(allocations_each *each, void *argument);

/* Shows every entry to `each`. */
void deferred_free_visit(allocations_each *each, void *argument);

/* Empties the table and renews its lock, in the child of a fork. */
void deferred_free_reset(void);

#endif
