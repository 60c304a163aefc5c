/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of what was given up by the program and stays charged until nobody has a descriptor of it.
 */
#ifndef CONVGPU_KEPT_H
#define CONVGPU_KEPT_H

#include "accounting/allocations.h"

#include <stdatomic.h>

typedef void kept_end(const struct allocation *entry);

/* `end` is called, with the owner's lock held, for an entry of which nobody has a descriptor any more. */
struct kept {
    struct allocations entries; /* by the name of the descriptors, which no other entry has */
    struct allocations open;    /* of those, who is found open; empty between calls */
    _Atomic uint32_t count;     /* may be read without the owner's lock, which guards the rest */
    kept_end *end;
};

/* Enters it under `address`, the name of its descriptors. False: no memory. */
bool kept_enter(struct kept *kept, struct allocation entry);
bool kept_has(struct kept *kept, uint64_t name);

/* Takes any entry out of a table. False: there is none. */
bool kept_pop(struct allocations *table, struct allocation *entry);

/* Ends what nobody has a descriptor of; nothing where nobody can tell. */
void kept_reclaim(struct kept *kept);
void kept_reset(struct kept *kept);

/* Memory of cuMemAlloc that the driver has freed, and counts for nobody from now on, is charged as long as
 * anybody has a descriptor of that name; then it is given back. `address`: where it was, 0 if its pages are
 * not counted (accounting/small_pages.h). Takes a spinlock only. */
void kept_charge(uint64_t name, int device, uint64_t address, uint64_t size);

/* Gives back what nobody has a descriptor of by now. */
void kept_look(void);

#endif
