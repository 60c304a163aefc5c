/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions whose first launch was looked at (launch.h), and the libraries of kernels. What a launch
 * finds is a table without locks, which may forget; behind it stands one that does not. All of it is
 * forgotten whenever a handle may come to name something else, or a stack may have become smaller.
 *
 * A CUfunction belongs to one context. A CUkernel has as many forms as there are contexts: while there are
 * several, it is known by its handle and the context together.
 */
#ifndef CONVGPU_FUNCTIONS_H
#define CONVGPU_FUNCTIONS_H

#include "tables/driver.h"

#include <stdatomic.h>

enum { FUNCTIONS_BITS = 13 };
#define FUNCTIONS_FACTOR UINT64_C(0x9e3779b97f4a7c15)
extern _Alignas(64) _Atomic word functions_seen[1 << FUNCTIONS_BITS];

static inline unsigned functions_slot(word function) {
    return (unsigned)(function * FUNCTIONS_FACTOR >> (64 - FUNCTIONS_BITS));
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

/* A kernel of the library. Without memory for the record it is taken for a function. */
void functions_add_kernel(word kernel, uint64_t library);

/* The library of a kernel; 0: it is none. */
uint64_t functions_library(word kernel);

/* Around the end of a library: its kernels go with it, if it is gone. */
void functions_mark_library(uint64_t library);
void functions_drop_library(uint64_t library, bool gone);

#endif
