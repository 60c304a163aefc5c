/* SPDX-License-Identifier: Apache-2.0 */
#include "gate/queue.h"

#include "base/fork_reset.h"
#include "base/futex.h"
#include "base/spinlock.h"

enum { ROOM = 64 };

static struct spinlock lock;
static struct order orders[ROOM]; /* guarded by `lock` */
static unsigned first, count;     /* guarded by `lock` */
static _Atomic uint32_t changes;  /* the futex */
static _Atomic bool is_idle;

bool queue_add(const struct order *order) {
    spinlock_lock(&lock);
    bool room = count < ROOM;
    if (room) orders[(first + count++) % ROOM] = *order;
    spinlock_unlock(&lock);
    queue_wake();
    return room;
}

void queue_begin_anew(const struct order *order) {
    spinlock_lock(&lock);
    count = 1;
    orders[first] = *order;
    spinlock_unlock(&lock);
    queue_wake();
}

static bool is_move(const struct order *order) {
    return order->kind == ORDER_EVICT || order->kind == ORDER_RESTORE;
}

bool queue_take(struct order *order, bool moves) {
    spinlock_lock(&lock);
    bool there = count > 0 && (moves || !is_move(&orders[first]));
    if (there) {
        *order = orders[first];
        first = (first + 1) % ROOM;
        count--;
    }
    spinlock_unlock(&lock);
    return there;
}

void queue_wake(void) {
    atomic_fetch_add(&changes, 1);
    futex_wake(&changes);
}

void queue_set_idle(bool idle) {
    atomic_store(&is_idle, idle);
}

void queue_wake_idle(void) {
    if (atomic_load(&is_idle)) queue_wake();
}

uint32_t queue_changes(void) {
    return atomic_load(&changes);
}

void queue_wait(uint32_t seen, int milliseconds) {
    if (atomic_load(&changes) == seen) futex_wait(&changes, seen, milliseconds);
}

static void queue_reset(void) {
    lock = (struct spinlock){0};
    first = count = 0;
}
RESET_IN_CHILD(queue_reset);
