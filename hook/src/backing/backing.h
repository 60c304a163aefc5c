/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations of a process that takes part: addresses of their own, behind which lie pieces that can leave
 * the device and come back (ranges.h). Charged like any other allocation, also while they are out.
 *
 * Freed ranges may stay in a cache (cache.h), of 64 MiB or 1 % of the limit, whichever is more. They go back
 * to the device before this process asks for memory, waits or is refused, when another process's allocation
 * waits, when the process is stopped, and when they were not used for a second.
 */
#ifndef CONVGPU_BACKING_H
#define CONVGPU_BACKING_H

#include "accounting/charge.h"

/* Whether an allocation of so many bytes is backed: others stay with the driver, which packs them. */
bool backing_takes(uint64_t bytes);

/* Allocates in `context`, on the device that the charge names; pauses as charge_open() does, and while the
 * process is stopped. CUDA_ERROR_NOT_SUPPORTED: the device has no such memory; nothing is charged. */
CUresult backing_allocate(struct charge *charge, CUcontext context, uint64_t bytes, CUdeviceptr *address);

/* Frees a backed range. False: it is none, and nothing happened. Waits for the device as cuMemFree does, but
 * not for a capture that is on its way: then the memory goes back after it. */
bool backing_free(CUdeviceptr address, CUresult *result);

/* Whether the address begins a backed range that the program has not freed. */
bool backing_has(CUdeviceptr address);

/* Gives the cache back to the device; CACHE_ANY_DEVICE: all of it. `age`: what was not used for so many ms.
 */
void backing_empty_cache(int device, int64_t age);

/* For the mover. Ends the freed ranges that nobody uses any more; `forget` is told of each piece that was
 * out. Says whether some are left. A freed range waits for a synchronisation with everything that was
 * submitted before: backing_ask() marks those that wait as asked for, backing_quieten() says that it has been
 * made. Both return whether there were any. */
typedef void backing_forget(int device, uint64_t piece, uint64_t size);
bool backing_sweep(backing_forget *forget);
bool backing_ask(void);
bool backing_quieten(void);

#endif
