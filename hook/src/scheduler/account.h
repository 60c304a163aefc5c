/* SPDX-License-Identifier: Apache-2.0
 *
 * What this process uses of each device, and the headroom that it shares with the scheduler. Devices are
 * numbered by the order in which they were first named in a WELCOME; the number stays valid for the life of
 * the process, whatever order a later scheduler names them in. Sizes are bytes.
 */
#ifndef CONVGPU_ACCOUNT_H
#define CONVGPU_ACCOUNT_H

#include <convgpu/page.h>
#include <convgpu/protocol.h>
#include <stdbool.h>
#include <stdint.h>

/* The number of the device with this UUID, or -1. */
int account_find(const uint8_t *uuid);

/* Device numbers below this exist. */
uint32_t account_devices(void);

/* Row of the device in the present WELCOME, or -1 when the container has no limit on it any more. */
int account_row(uint32_t device);

const uint8_t *account_uuid(uint32_t device);
uint64_t account_limit(uint32_t device);

/* The limit, and whether no other process of the container can use any of it. */
uint64_t account_published_limit(uint32_t device, bool *alone);

uint64_t account_context_size(uint32_t device);

/* What this process uses, contexts included, and the part of it that is contexts. */
uint64_t account_used(uint32_t device);
uint64_t account_contexts(uint32_t device);

/* Takes `size` from the headroom if it holds as many. */
bool account_take(uint32_t device, uint64_t size);

/* Gives `size` back to the headroom. True when the scheduler wants to hear of it (FREED). */
bool account_give(uint32_t device, uint64_t size);

/* The scheduler gave `size` past the headroom (ACCEPTED). Called by the service thread only. */
void account_accept(uint32_t device, uint64_t size);

/* Bytes that were ever taken, whatever was given back since. */
uint64_t account_taken(uint32_t device);

/* When the contexts are to be measured next (context_growth.h): once half of what can be had without asking
 * was taken, before the next byte is, or never; the last is how it begins. */
enum account_mark { ACCOUNT_NEVER, ACCOUNT_NOW, ACCOUNT_HALFWAY };
void account_watch(uint32_t device, enum account_mark mark);
bool account_watched(uint32_t device);

/* Whether the mark is passed, or would be with `size` more. */
bool account_due(uint32_t device, uint64_t size);

/* Of what is used already, `size` more (or less) is for contexts. */
void account_add_context(uint32_t device, uint64_t size);
void account_remove_context(uint32_t device, uint64_t size);

/* The connection ended: the headroom went with it. */
void account_leave(void);

/* What is used, as rows for HELLO; `held` has room for CONVGPU_MAX_DEVICES. Returns the number of rows. */
uint32_t account_hold(struct convgpu_held *held);

/* A WELCOME with its page came. False, and nothing changed, when it names more devices than fit. On success
 * the page belongs to the account, and bit N of *wanted tells that the scheduler wants to hear of a free on
 * N. */
bool account_welcome(const struct convgpu_device *rows, uint32_t count, struct convgpu_page *page,
                     uint64_t *armed);

/* Forgets everything, the locks too: for the child of a fork. */
void account_reset(void);

#endif
