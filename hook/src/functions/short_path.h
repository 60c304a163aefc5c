/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launches pass at once. A bit for each value of a hash of handles: clear while a function of that
 * hash, whose handle the program has got from the driver, was not looked at (functions.h). So all launches
 * read two lines of the cache, however many functions there are; a table of those that were looked at has a
 * line for each, and is cold by the function's next turn: 10 to 30 ns of a launch on a card
 * (docs/decisions/0215).
 *
 * No bit is set until it is opened, and none any more once it is shut. functions.c calls all but the first
 * function, with its lock held.
 */
#ifndef CONVGPU_SHORT_PATH_H
#define CONVGPU_SHORT_PATH_H

#include "tables/driver.h"

#include <stdatomic.h>

#define HANDLES_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* Fibonacci hashing */
enum { SHORT_PATH_BITS = 10 };
extern _Alignas(64) _Atomic uint32_t short_path_bits[(1 << SHORT_PATH_BITS) / 32];

static inline unsigned short_path_hash(word function) {
    return (unsigned)(function * HANDLES_FACTOR >> (64 - SHORT_PATH_BITS));
}

/* Whether a launch of it goes straight to the driver, which is loaded then. */
static inline bool short_path_is_open(word function) {
    unsigned hash = short_path_hash(function);
    uint32_t bits = atomic_load_explicit(&short_path_bits[hash / 32], memory_order_acquire);
    return __builtin_expect(bits >> hash % 32 & 1, 1);
}

/* A handle has come, and waits for its first launch; it waits no longer; it is gone. */
void short_path_add(word function);
void short_path_release(word function);
void short_path_remove(word function, bool waits);

/* All wait again. */
void short_path_close_all(void);

/* From now on the bits say what they should; never again. */
void short_path_open(void);
void short_path_shut(void);
bool short_path_is_shut(void);

/* As in the beginning: for the child of a fork. */
void short_path_reset(void);

#endif
