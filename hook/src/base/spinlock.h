/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock for a few instructions that nobody ever waits in. Taking it costs one atomic operation and leaving
 * it none (a mutex: one each, and two calls), which is what an accepted allocation is made of. Who finds it
 * taken looks a few times, then sleeps: the holder may have been preempted, also by a thread of a higher
 * priority that now asks for it.
 */
#ifndef CONVGPU_LATCH_H
#define CONVGPU_LATCH_H

#include "base/no_cancel.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct latch {
    _Atomic bool taken;
};

static inline void latch_wait(struct latch *latch) {
    enum { LOOKS = 100, NAP_NS = 20000 };
    int saved_errno = errno, cancellation = uncancelled_begin();
    for (int look = 0; atomic_load_explicit(&latch->taken, memory_order_relaxed); look++)
        if (look >= LOOKS) nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    uncancelled_end(cancellation);
    errno = saved_errno;
}

static inline void latch_take(struct latch *latch) {
    while (atomic_exchange_explicit(&latch->taken, true, memory_order_acquire)) latch_wait(latch);
}

static inline void latch_leave(struct latch *latch) {
    atomic_store_explicit(&latch->taken, false, memory_order_release);
}

#endif
