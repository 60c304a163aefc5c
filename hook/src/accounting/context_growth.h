/* SPDX-License-Identifier: Apache-2.0
 *
 * What contexts take grows after they were made: code and variables of modules, stacks, heaps, buffers of
 * printf, queues of streams. Where the size is known before, it is promised (promises/promises.h). Of the
 * rest no call of the driver tells the size. So the driver's own count of the process, which the scheduler
 * can ask for (CONTEXT in docs/protocol.md), is read before memory is handed out that would bring the account
 * near the limit, and after calls that are known to make contexts grow. See docs/decisions/0016 and 0101.
 */
#ifndef CONVGPU_CONTEXT_GROWTH_H
#define CONVGPU_CONTEXT_GROWTH_H

#include "tables/driver.h"

/* A context was made on the device; one ended. What contexts grew goes back with the last. */
void growth_context_made(int device);
void growth_context_ended(int device);

/* Asks what the contexts take after one was made, of whose charge `own` is a part: *more was taken for it,
 * *less is too much and for the caller to give back. CUDA_ERROR_OUT_OF_MEMORY: more is needed and cannot be
 * had. May pause; waits while another thread measures the device. */
CUresult growth_correct(int device, const char *call, uint64_t own, uint64_t *more, uint64_t *less);

/* Asks, and charges what the contexts grew; `pending` bytes of the account have not reached the driver yet.
 * CUDA_ERROR_OUT_OF_MEMORY: it cannot be had, so nothing else may be handed out. Nothing is done while
 * another thread asks for the same device. May pause; no lock may be held. */
CUresult growth_charge(int device, const char *call, uint64_t pending);

/* The same, but waits while another thread asks, and does ask. */
CUresult growth_charge_now(int device, const char *call);

/* The same after a call for which `taken` bytes were charged, and are a part of the contexts' since: *rise is
 * by how much more they take than without them, at least; UINT64_MAX if nobody knows. */
CUresult growth_settle(int device, const char *call, uint64_t taken, uint64_t *rise);

/* The same of all devices but this one on which there are contexts, until one cannot be had. */
CUresult growth_charge_elsewhere(int device, const char *call);

/* Whether what contexts grew could not be had when it was measured last: it is there, and charged to nobody.
 */
bool growth_is_owed(int device);

/* Charges what is owed, if something is: as growth_charge_now(). For calls that cannot be undone in full. */
CUresult growth_charge_owed(int device, const char *call);

/* Gives back what was charged and is promised no longer (promises/promises.h). */
void growth_give_promised(int device, uint64_t size);

/* How many contexts live, on all devices. */
uint32_t growth_contexts(void);

/* Whether one lives on the device. */
bool growth_has_contexts(int device);

/* Growth whose size is known, and which is charged already: from now on it belongs to the contexts. Or gives
 * it back, though never more than was charged for growth. */
void growth_add(int device, uint64_t size);
void growth_add_promised(int device, uint64_t size); /* that was charged as the contexts' already */
void growth_give(int device, uint64_t size);

/* After a call that may have made contexts smaller: gives back what they do not take any more. */
void growth_fell(int device);

/* The same; whether all that the contexts took was seen, and what was promised of it is not promised any more
 * (promises/promises.h). False while another thread measures or takes memory, and where nobody knows. */
bool growth_look(int device);

/* The same of all devices but this one, whose contexts grew. */
void growth_fell_elsewhere(int device);

/* What was given back may not have left the driver: the next byte is not handed out before a measurement. */
void growth_suspect(int device);

/* The driver has so much more, which is about to be charged, until it is or is undone: it is no context's. */
void growth_expect(int device, uint64_t size);
void growth_expected(int device, uint64_t size);

/* The driver's count of a process does not hold managed memory: `size` bytes of it came or went. */
void growth_hide(int device, uint64_t size);
void growth_show(int device, uint64_t size);

#endif
