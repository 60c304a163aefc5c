/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of cuMemAlloc that was freed in a stream is the device's again after a synchronisation with that
 * stream (seen on an H200: neither a query nor another stream gives it back). Until then it stays charged.
 */
#ifndef CONVGPU_LATE_H
#define CONVGPU_LATE_H

#include "accounting/allocations.h"
#include "tables/driver.h"

/* Enters what was freed in the stream; `replaced` as in allocations_insert. False: no memory for it. */
bool late_enter(struct allocation entry, CUstream stream, struct allocation *replaced);

/* After a synchronisation, with a stream or with all: shows each entry that is over to `each` and forgets it.
 * False when nothing was ever late. */
bool late_end(CUstream stream, allocations_each *each, void *argument);
bool late_end_all(allocations_each *each, void *argument);

void late_reset(void);

#endif
