/* SPDX-License-Identifier: Apache-2.0 */
#include "gate/captures.h"

#include "accounting/allocations.h"
#include "base/fork_reset.h"
#include "base/futex.h"

#include <stdatomic.h>

static struct allocations streams = ALLOCATIONS_INITIALIZER;
static struct spinlock lock;
static _Atomic uint32_t on_their_way; /* written under `lock` */
static uint32_t holds;                /* guarded by `lock` */
static _Atomic uint32_t releases;     /* the futex of captures that wait */
static _Thread_local char own __attribute__((tls_model("initial-exec"))); /* its address names the thread */

/* Each thread has a default stream of its own. */
static uint64_t name_of(CUstream stream) {
    bool of_thread = (uintptr_t)stream == CU_STREAM_PER_THREAD;
    return of_thread ? (uint64_t)(uintptr_t)&own : (uint64_t)(uintptr_t)stream;
}

static bool enter(void) {
    spinlock_lock(&lock);
    bool may = holds == 0;
    if (may) on_their_way++;
    spinlock_unlock(&lock);
    return may;
}

static void leave(void) {
    spinlock_lock(&lock);
    on_their_way--;
    spinlock_unlock(&lock);
}

/* Without memory for the record the capture is not known: a stop may break it. */
bool captures_enter(CUstream stream) {
    struct allocation replaced, entry = {.address = name_of(stream)};
    if (!enter()) return false;
    if (!allocations_insert(&streams, entry, &replaced) || replaced.address != 0) leave();
    return true;
}

void captures_leave(CUstream stream) {
    struct allocation removed;
    if (allocations_remove(&streams, name_of(stream), &removed)) leave();
}

uint32_t captures_releases(void) {
    return atomic_load(&releases);
}

void captures_wait(uint32_t seen) {
    futex_wait(&releases, seen, FUTEX_FOR_EVER);
}

uint32_t captures_count(void) {
    return atomic_load(&on_their_way);
}

bool captures_hold(void) {
    spinlock_lock(&lock);
    bool may = on_their_way == 0;
    if (may) holds++;
    spinlock_unlock(&lock);
    return may;
}

void captures_release(void) {
    spinlock_lock(&lock);
    holds--;
    spinlock_unlock(&lock);
    atomic_fetch_add(&releases, 1);
    futex_wake(&releases);
}

static void captures_reset(void) {
    allocations_reset(&streams);
    lock = (struct spinlock){0};
    on_their_way = holds = 0;
}
RESET_IN_CHILD(captures_reset);
