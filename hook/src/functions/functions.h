/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions whose first launch was looked at (launch.h), and the libraries of kernels. What a launch
 * finds is a table without locks, which may forget; behind it stands one that does not. All of it is
 * forgotten whenever a handle may come to name something else, or a stack may have become smaller; of a
 * module or a library that is unloaded, what is its own.
 *
 * A CUfunction belongs to one context. A CUkernel has as many forms as there are contexts: while there are
 * several, it is known by its handle and the context together.
 */
#ifndef CONVGPU_FUNCTIONS_H
#define CONVGPU_FUNCTIONS_H

#include "functions/short_path.h"
#include "tables/driver.h"

#include <stdatomic.h>

enum { FUNCTIONS_BITS = 13 };
extern _Alignas(64) _Atomic word functions_seen[1 << FUNCTIONS_BITS];

static inline unsigned functions_slot(word function) {
    return (unsigned)(function * HANDLES_FACTOR >> (64 - FUNCTIONS_BITS));
}

static inline bool functions_stand_at(unsigned slot, word function) {
    return atomic_load_explicit(&functions_seen[slot], memory_order_relaxed) == function;
}

/* Whether a launch of it may pass unseen: each function has two places, in one line of the cache. */
static inline bool functions_are_seen(word function) {
    unsigned slot = functions_slot(function);
    if (__builtin_expect(functions_stand_at(slot, function), 1)) return true;
    return functions_stand_at(slot ^ 1, function);
}

/* Changes whenever something is forgotten. */
uint32_t functions_generation(void);

/* Whether it was looked at in the context: then later launches pass, as far as the table has room. */
bool functions_know(word function, CUcontext context);

/* It was looked at, since the generation was read. */
void functions_learn(word function, CUcontext context, uint32_t generation);

/* Forgets all functions. */
void functions_forget(void);

/* The program has got a handle from the driver: of a function of a module, or of a library's in the current
 * context; or of a kernel of a library. Before its first launch was looked at, the short path is closed to it
 * (short_path.h). Without memory for the record the path is shut, and a kernel is taken for a function. */
enum functions_kind { FUNCTIONS_FUNCTION, FUNCTIONS_KERNEL };
void functions_add(enum functions_kind kind, word made, uint64_t owner);

/* From now on handles may go with something else than their owner: the program has got the module of a
 * library or of a function, and of that functions. So all is forgotten with whatever is unloaded. */
void functions_mix(void);

/* A context has ended: if it was the last, all functions are gone, and no kernel is. */
void functions_end_last(void);

/* The library of a kernel; 0: it is none. */
uint64_t functions_library(word kernel);

/* Around the end of a module or a library: before it, and after. Its handles go with it, if it is gone, and
 * their functions are forgotten. */
void functions_mark_owner(uint64_t owner);
void functions_end_owner(uint64_t owner, bool gone);

#endif
