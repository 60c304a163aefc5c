/* SPDX-License-Identifier: Apache-2.0
 *
 * What this process uses of each device, and the headroom that it shares with the scheduler. Devices are
 * numbered by the order in which they were first named in a WELCOME; the number stays valid for the life of
 * the process, whatever order a later scheduler names them in. Sizes are bytes.
 *
 * Each function but account_reset() may be called by any thread at any time, holding any lock of the hook:
 * the only lock taken here is `swap` (account.c), a leaf. None blocks, allocates, makes a system call or
 * changes errno; account_leave() alone calls munmap(). `device` is below account_devices().
 */
#ifndef CONVGPU_ACCOUNT_H
#define CONVGPU_ACCOUNT_H

#include <convgpu/page.h>
#include <convgpu/protocol.h>
#include <stdbool.h>
#include <stdint.h>

/* The devices that the scheduler chose for the container, in the order in which CUDA and NVML number them. */
struct account_chosen {
    uint32_t count;
    uint8_t uuid[CONVGPU_MAX_DEVICES][CONVGPU_UUID_SIZE];
};

/* Returns the number of the device with this UUID (CONVGPU_UUID_SIZE bytes), or -1. Takes no lock. */
int account_find(const uint8_t *uuid);

/* Returns how many devices were named so far; it never falls. Takes no lock. */
uint32_t account_devices(void);

/* Returns the row of the device in the present WELCOME, or -1 when the container has no limit on it any more.
 * Stable while the channel's `sending` is held; otherwise the next WELCOME may change it at once. No lock. */
int account_row(uint32_t device);

/* Writes the devices of the last WELCOME, if the scheduler chose them; false, with nothing written, if the
 * container has those that its user named. Takes `swap`. */
bool account_chosen(struct account_chosen *devices);

/* Returns the UUID; valid and unchanged until the process forks. Takes no lock. */
const uint8_t *account_uuid(uint32_t device);

/* Returns the container's limit: the page's, or the last WELCOME's while away. Takes `swap`. */
uint64_t account_limit(uint32_t device);

/* As account_limit(); *alone: no other process of the container can use any of it. Takes `swap`. */
uint64_t account_published_limit(uint32_t device, bool *alone);

/* Returns what to charge for a new context. Takes no lock. */
uint64_t account_context_size(uint32_t device);

/* Returns what this process uses, contexts included. Takes no lock: a figure of some moment of the call. */
uint64_t account_used(uint32_t device);

/* Returns the part of account_used() that is contexts. Takes no lock. */
uint64_t account_contexts(uint32_t device);

/* Takes `size` from the headroom if it holds as many, and says whether it did; all or nothing. *traced (may
 * be NULL: it is no call of the program's own): the scheduler wants a report of it (TRACED). Takes `swap`. */
bool account_take(uint32_t device, uint64_t size, bool *traced);

/* Gives back `size` that was taken. True when the scheduler wants to hear of it (channel_freed()). Takes
 * `swap`. */
bool account_give(uint32_t device, uint64_t size);

/* Counts `size` that the scheduler gave past the headroom (ACCEPTED). The service thread's alone. Takes
 * `swap`. */
void account_accept(uint32_t device, uint64_t size);

/* Returns the bytes that were ever taken, whatever was given back since. Takes no lock. */
uint64_t account_taken(uint32_t device);

/* When the contexts are to be measured next (context_growth.h): once half of what can be had without asking
 * was taken, before the next byte is, or never; the last is how it begins. */
enum account_mark { ACCOUNT_NEVER, ACCOUNT_NOW, ACCOUNT_HALFWAY };

/* Sets the mark from what is used now. Takes `swap`. */
void account_watch(uint32_t device, enum account_mark mark);

/* Whether a mark is set. Takes no lock. */
bool account_watched(uint32_t device);

/* Whether the mark is passed, or would be with `size` more. Takes no lock. */
bool account_due(uint32_t device, uint64_t size);

/* Says that `size` of what is used already is for contexts. Takes no lock: one atomic addition. */
void account_add_context(uint32_t device, uint64_t size);

/* Says that `size` of what was for contexts is not any more. Takes no lock: one atomic subtraction. */
void account_remove_context(uint32_t device, uint64_t size);

/* Memory that cannot leave the device, in a process that takes part ("Memory that can leave" in
 * docs/protocol.md): beside its bytes it needs as many of the slot's `fixed`. Takes them if there are as
 * many, gives them back, takes note that the scheduler gave some past the slot, and says how many are used.
 * In another process all of it does nothing, and succeeds. Each takes `swap`. */
bool account_take_fixed(uint32_t device, uint64_t size);
void account_give_fixed(uint32_t device, uint64_t size);
void account_accept_fixed(uint32_t device, uint64_t size);
uint64_t account_fixed(uint32_t device);

/* Whether the scheduler wants to hear of the next free: somebody's allocation waits. Takes `swap`. */
bool account_wanted(uint32_t device);

/* Drops the headroom and unmaps the page, because the connection ended. The service thread's alone. Takes
 * `swap`. */
void account_leave(void);

/* Writes what is used as rows for HELLO; `held` has room for CONVGPU_MAX_DEVICES. Returns the number of rows.
 * Called while disconnected by the thread that connects. Takes `swap`. */
uint32_t account_hold(struct convgpu_held *held);

/* Takes over a WELCOME with its page. False, and nothing changed, when it names more devices than fit: the
 * page stays the caller's. On success the page belongs to the account, and bit N of *armed tells that the
 * scheduler wants to hear of a free on N. Called by the thread that connected. Takes `swap`. */
bool account_welcome(const struct convgpu_device *rows, uint32_t count, struct convgpu_page *page,
                     uint64_t *armed);

/* Whether this scheduler is to be told of exports: 0, or the number of the connection: what was told before
 * is to be told again. No lock. */
uint32_t account_hears_of_exports(void);

/* Forgets everything, the lock too: for the child of a fork, which has one thread. */
void account_reset(void);

/* Whether the container's memory is managed by the driver, and may be more than its device has. */
bool account_is_unified(void);

#endif
