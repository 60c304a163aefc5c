/* SPDX-License-Identifier: Apache-2.0
 *
 * Live allocations of linear memory, by address. In parts, so that a growing table copies a few of its
 * entries at a time, and threads rarely meet.
 */
#ifndef CONVGPU_LIVE_MEMORY_H
#define CONVGPU_LIVE_MEMORY_H

#include "accounting/allocations.h"
#include "tables/driver.h"

enum { LIVE_PARTS = 64 };
extern struct allocations live_memory[LIVE_PARTS];

/* The part that an address belongs to. */
struct allocations *live_memory_part(CUdeviceptr address);

/* Ends what an entry was charged with, which is in no table any more: bytes for the caller to give back.
 * What somebody may have a descriptor of stays charged. */
uint64_t live_memory_leave(const struct allocation *entry);

/* Who has the descriptor, or will have it, keeps all of each allocation that the addresses touch. */
bool live_memory_mark_shared(CUdeviceptr address, size_t size);
bool live_memory_share(CUdeviceptr address, size_t size, int descriptor);

void live_memory_reset(void);

#endif
