/* SPDX-License-Identifier: Apache-2.0
 *
 * The page that a process shares with the scheduler: one word per device, its headroom.
 *
 * The scheduler leases memory to the process by adding to the word, and takes unused lease back by taking from
 * it; the hook takes and gives by the same atomics. How much is leased stands only in the scheduler's book, so
 * usage = lease - headroom, and a process killed between any two instructions leaves nothing to repair.
 * What stands here is the process's word: the scheduler never lets it count for more than it leased.
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

/* One cache line each, so that threads on different devices do not disturb each other. */
struct convgpu_word {
    _Alignas(64) _Atomic uint64_t headroom; /* bytes leased and not used */
    _Atomic uint32_t wanted; /* set by the scheduler: somebody waits, the next free is to be reported */
    _Atomic uint32_t alone;  /* told by the scheduler: no other process of the container has a session */
    _Atomic uint64_t limit;  /* told by the scheduler: of the container; 0 by one that does not tell it here */
};

struct convgpu_page {
    uint32_t magic;
    uint32_t version;
    uint32_t device_count;
    uint32_t reserved;
    struct convgpu_word device[CONVGPU_MAX_DEVICES];
};
_Static_assert(sizeof(struct convgpu_word) == 64, "one cache line");
_Static_assert(sizeof(struct convgpu_page) == 4096, "one page");

/* Takes `size` bytes if the word holds as many; never makes it negative, so a reader always sees the truth. */
static inline bool convgpu_word_take(struct convgpu_word *word, uint64_t size) {
    uint64_t have = atomic_load_explicit(&word->headroom, memory_order_relaxed);
    do {
        if (have < size) return false;
    } while (!atomic_compare_exchange_weak(&word->headroom, &have, have - size));
    return true;
}

/* Gives back. Returns whether that is to be reported with FREED: somebody waits, and no report is on its way (the
 * report takes `wanted` with it, and the scheduler sets it again before it takes). Sequentially consistent with
 * convgpu_word_take_all and convgpu_word_want, so that either the scheduler's take sees these bytes or the giver
 * sees `wanted`. */
static inline bool convgpu_word_give(struct convgpu_word *word, uint64_t size) {
    atomic_fetch_add(&word->headroom, size);
    return atomic_load(&word->wanted) != 0 && atomic_exchange(&word->wanted, 0) != 0;
}

/* Scheduler: leases more. */
static inline void convgpu_word_lease(struct convgpu_word *word, uint64_t size) {
    atomic_fetch_add(&word->headroom, size);
}

/* Scheduler: takes everything that is unused and says how much it was. */
static inline uint64_t convgpu_word_take_all(struct convgpu_word *word) {
    return atomic_exchange(&word->headroom, 0);
}

static inline uint64_t convgpu_word_read(struct convgpu_word *word) {
    return atomic_load(&word->headroom);
}

static inline void convgpu_word_want(struct convgpu_word *word, bool wanted) {
    atomic_store(&word->wanted, wanted);
}

/* Scheduler: tells what a question about memory can be answered with, before a second process can lease. */
static inline void convgpu_word_tell(struct convgpu_word *word, uint64_t limit, bool alone) {
    atomic_store(&word->limit, limit);
    atomic_store(&word->alone, alone);
}

#endif
