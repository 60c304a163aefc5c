/* SPDX-License-Identifier: Apache-2.0
 *
 * The page that a process shares with the scheduler: one slot per device, which holds the headroom.
 *
 * The scheduler leases memory to the process by adding to the slot, and reclaims unused lease by taking from it;
 * the hook takes and gives by the same atomics. How much is leased stands only in the scheduler's ledger, so
 * usage = lease - headroom, and a process killed between any two instructions leaves nothing to repair.
 * The process can write here whatever it likes: the scheduler never counts more headroom than it leased.
 *
 * The scheduler makes the page (memfd, sealed against shrinking and growing) and sends it with WELCOME.
 */
#ifndef CONVGPU_PAGE_H
#define CONVGPU_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CONVGPU_PAGE_MAGIC 0x50474743u /* "CGGP" */
#define CONVGPU_PAGE_VERSION 1u
#define CONVGPU_MAX_DEVICES 63u
/* Bits of the page's `flags`, set by the scheduler before it sends the page. */
#define CONVGPU_PAGE_ELASTIC 1u /* the container's memory may be moved: answer with ABLE */
#define CONVGPU_PAGE_CHOSEN 2u /* not all GPUs are the container's: the program may see those of WELCOME only */
#define CONVGPU_PAGE_WITHDRAW 4u /* the scheduler takes allocations back that were paused (WITHDRAW) */
#define CONVGPU_PAGE_UNIFIED 8u /* allocations are managed memory, and may be more than the device has */
#define CONVGPU_PAGE_EXPORTS 16u /* the scheduler is to be told of what is exported (EXPORTED) */

/* Bits of the page's `able`, set by the process: what it answers beside its own requests. */
#define CONVGPU_ABLE_LIST 1u
#define CONVGPU_ABLE_EXPLAINED 2u

/* In a slot's `trace`: accepted calls are reported (TRACED), as many as the other bits say, and then counted. */
#define CONVGPU_TRACE_ON 0x80000000u

/* One cache line each, so that threads on different devices do not disturb each other. */
struct convgpu_slot {
    _Alignas(64) _Atomic uint64_t headroom; /* bytes leased and not used */
    _Atomic uint32_t notify_on_free; /* armed by the scheduler: an allocation waits, report the next free */
    _Atomic uint32_t alone; /* published by the scheduler: no other process of the container has a session */
    _Atomic uint64_t limit; /* published by the scheduler: of the container; 0: not published */
    _Atomic uint64_t fixed; /* bytes leased for memory that cannot be moved and not used (ELASTIC only) */
    _Atomic uint32_t trace; /* set by the scheduler; 0: nobody follows the calls */
    _Atomic uint32_t untraced; /* calls that were counted and not reported */
};

struct convgpu_page {
    uint32_t magic;
    uint32_t version;
    uint32_t device_count;
    uint32_t flags; /* CONVGPU_PAGE_* */
    _Atomic uint32_t able; /* CONVGPU_ABLE_* */
    _Atomic uint32_t notice; /* set by the process: milliseconds after which it wants a pause explained; 0: as the
                              * scheduler's setting says; UINT32_MAX: never */
    struct convgpu_slot device[CONVGPU_MAX_DEVICES];
};
_Static_assert(sizeof(struct convgpu_slot) == 64, "one cache line");
_Static_assert(sizeof(struct convgpu_page) == 4096, "one page");

/* Takes `size` bytes if the slot holds as many, and says whether it did; the headroom is never negative. */
static inline bool convgpu_slot_take(struct convgpu_slot *slot, uint64_t size) {
    uint64_t have = atomic_load_explicit(&slot->headroom, memory_order_relaxed);
    do {
        if (have < size) return false;
    } while (!atomic_compare_exchange_weak(&slot->headroom, &have, have - size));
    return true;
}

/* Takes `size` bytes of the room for fixed memory, if there are as many. */
static inline bool convgpu_slot_take_fixed(struct convgpu_slot *slot, uint64_t size) {
    uint64_t have = atomic_load_explicit(&slot->fixed, memory_order_relaxed);
    do {
        if (have < size) return false;
    } while (!atomic_compare_exchange_weak(&slot->fixed, &have, have - size));
    return true;
}

/* Gives `size` bytes back. True: the caller is to report it with FREED, because an allocation waits and no report
 * is on its way (a report disarms notify_on_free, and the scheduler arms it again before it takes). Sequentially
 * consistent with convgpu_slot_take_all and convgpu_slot_arm, so that either the scheduler's take sees these bytes
 * or the giver sees notify_on_free. */
static inline bool convgpu_slot_give(struct convgpu_slot *slot, uint64_t size) {
    atomic_fetch_add(&slot->headroom, size);
    return atomic_load(&slot->notify_on_free) != 0 && atomic_exchange(&slot->notify_on_free, 0) != 0;
}

/* Whether an accepted call is to be reported. For who is not followed, one load of a line that is at hand. */
static inline bool convgpu_slot_traced(struct convgpu_slot *slot) {
    uint32_t trace = atomic_load_explicit(&slot->trace, memory_order_relaxed);
    while (trace & ~CONVGPU_TRACE_ON)
        if (atomic_compare_exchange_weak(&slot->trace, &trace, trace - 1)) return true;
    if (trace != 0) atomic_fetch_add(&slot->untraced, 1);
    return false;
}

/* Scheduler: lets `calls` more be reported, or (`on` false) none at all. Returns how many were counted only. */
static inline uint32_t convgpu_slot_trace(struct convgpu_slot *slot, bool on, uint32_t calls) {
    atomic_store(&slot->trace, on ? CONVGPU_TRACE_ON | calls : 0);
    return atomic_exchange(&slot->untraced, 0);
}

/* Scheduler: leases `size` bytes more. */
static inline void convgpu_slot_lease(struct convgpu_slot *slot, uint64_t size) {
    atomic_fetch_add(&slot->headroom, size);
}

/* Scheduler: takes the whole headroom and returns how many bytes it was. */
static inline uint64_t convgpu_slot_take_all(struct convgpu_slot *slot) {
    return atomic_exchange(&slot->headroom, 0);
}

/* Returns the headroom in bytes. */
static inline uint64_t convgpu_slot_read(struct convgpu_slot *slot) {
    return atomic_load(&slot->headroom);
}

/* Scheduler: asks for a report of the next free, or asks for none any more. */
static inline void convgpu_slot_arm(struct convgpu_slot *slot, bool armed) {
    atomic_store(&slot->notify_on_free, armed);
}

/* Scheduler: publishes what the hook answers questions about memory with, before a second process can lease. */
static inline void convgpu_slot_publish(struct convgpu_slot *slot, uint64_t limit, bool alone) {
    atomic_store(&slot->limit, limit);
    atomic_store(&slot->alone, alone);
}

#endif
