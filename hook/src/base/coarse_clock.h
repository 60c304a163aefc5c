/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds for the ages of allocations, at the cost of one load: the service thread, which wakes every two
 * seconds anyhow, writes them. So an age is up to two seconds too high.
 */
#ifndef CONVGPU_COARSE_CLOCK_H
#define CONVGPU_COARSE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* Seconds of CLOCK_MONOTONIC, more 1; 0: not known yet. */
extern _Atomic uint32_t coarse_clock;

/* Returns what was written last. */
static inline uint32_t coarse_clock_read(void) {
    return atomic_load_explicit(&coarse_clock, memory_order_relaxed);
}

/* Writes what the time is, and returns it. */
static inline uint32_t coarse_clock_tick(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store_explicit(&coarse_clock, (uint32_t)now.tv_sec + 1, memory_order_relaxed);
    return (uint32_t)now.tv_sec + 1;
}

#endif
