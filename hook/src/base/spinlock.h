/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock for a few instructions. Taking it costs one atomic operation and leaving it none (a mutex: one each,
 * and two calls), which is what an accepted allocation is made of. A thread that finds it taken polls a few
 * times, then sleeps: the holder may have been preempted, also by a thread of a higher priority that now asks
 * for it. Nothing that blocks may be called while it is held.
 */
#ifndef CONVGPU_SPINLOCK_H
#define CONVGPU_SPINLOCK_H

#include "base/no_cancel.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct spinlock {
    _Atomic bool taken;
};

/* Returns when the lock seemed free; errno is kept. */
static inline void spinlock_wait(struct spinlock *lock) {
    enum { POLLS = 100, NAP_NS = 20000 };
    int saved_errno = errno, cancellation = no_cancel_begin();
    for (int poll = 0; atomic_load_explicit(&lock->taken, memory_order_relaxed); poll++)
        if (poll >= POLLS) nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    no_cancel_end(cancellation);
    errno = saved_errno;
}

/* Takes the lock; not recursive. errno is kept. */
static inline void spinlock_lock(struct spinlock *lock) {
    while (atomic_exchange_explicit(&lock->taken, true, memory_order_acquire)) spinlock_wait(lock);
}

/* Leaves the lock, which the calling thread holds. */
static inline void spinlock_unlock(struct spinlock *lock) {
    atomic_store_explicit(&lock->taken, false, memory_order_release);
}

#endif
