/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames that the scheduler starts ("Memory that can leave" in docs/protocol.md): their ids have the top bit
 * set, and only an elastic process gets them. A higher layer registers who carries them out.
 */
#ifndef CONVGPU_ORDERS_H
#define CONVGPU_ORDERS_H

#include <convgpu/protocol.h>
#include <stdbool.h>
#include <stdint.h>

#define CONVGPU_ORDER_ID (UINT64_C(1) << 63)

struct order_handler {
    /* A WELCOME came, whose page has these flags. The service thread's, the first time the session's, under
     * its lock. False: there is no thread or memory for what the flags ask; the connection is given up. */
    bool (*welcomed)(uint32_t page_flags);

    /* A well-formed order; `descriptor` came with it (-1: none) and is the handler's to close. The service
     * thread's: it must not wait. False: nobody can carry it out now, and the connection is made anew. */
    bool (*ordered)(enum convgpu_kind kind, const void *body, int descriptor);
};

/* Passes a WELCOME on. True when nobody is registered. */
bool orders_welcome(uint32_t page_flags);

/* Whether a frame is an order. Pure. */
bool orders_is_one(const struct convgpu_header *header);

/* What only a process that said ABLE may say; the scheduler gives up a connection on which it comes before.
 * Pure. */
bool orders_is_of_able(enum convgpu_kind kind);

/* Passes an order on; the contract is the handler's. */
bool orders_carry_out(uint16_t kind, const void *body, int descriptor);

/* REGISTER_ORDERS(mover, .welcomed = ..., .ordered = ...); once, at the end of a file. */
#define REGISTER_ORDERS(name, ...)                                                                           \
    static const struct order_handler name##_orders = {__VA_ARGS__};                                         \
    static const struct order_handler *const name##_orders_registered                                        \
        __attribute__((section("convgpu_orders"), used)) = &name##_orders

#endif
