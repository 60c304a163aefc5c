/* SPDX-License-Identifier: Apache-2.0
 *
 * What the mover's thread is to do, in the order in which it came. Any thread may add, without waiting.
 */
#ifndef CONVGPU_QUEUE_H
#define CONVGPU_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

enum order_kind {
    ORDER_WELCOME, /* a scheduler is there, or another one */
    ORDER_STOP,
    ORDER_STEP,
    ORDER_EVICT,
    ORDER_RESTORE,
    ORDER_GO,
    ORDER_WATCH,
};

struct order {
    enum order_kind kind;
    uint64_t epoch;
    uint32_t device;   /* row of WELCOME */
    uint32_t deadline; /* ms */
    uint64_t count;    /* bytes, submissions, or whether to watch */
};

/* Adds an order; false when the queue is full: the scheduler floods. */
bool queue_add(const struct order *order);

/* Drops all orders and adds one. For a new connection: those before it were of one that is gone. */
void queue_begin_anew(const struct order *order);

/* Takes the first order; one that moves memory only if `moves`. False when there is none. */
bool queue_take(struct order *order, bool moves);

/* Lets queue_wait() return: something that the mover does by itself is due. */
void queue_wake(void);

/* The mover is about to wait for ever, or does not any more. Who leaves it something to do in a while wakes
 * it only then: queue_wake_idle() costs a load at other times. After queue_set_idle(true) the mover looks
 * again. */
void queue_set_idle(bool idle);
void queue_wake_idle(void);

/* A number that changes with each order and wake, and a wait until it is not `seen` any more. */
uint32_t queue_changes(void);
void queue_wait(uint32_t seen, int milliseconds);

#endif
