/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory pools and stream-ordered allocations. A pool is charged with what it has reserved of the device, not
 * with what the program uses of it: reserved memory is taken from everybody else. Each function takes the
 * lock of the pools and may be called with no lock held but that of a context's creation.
 */
#ifndef CONVGPU_POOL_H
#define CONVGPU_POOL_H

#include "accounting/allocations.h"
#include "tables/driver.h"

/* A pool of host memory: nothing is charged. */
enum { NOT_OF_A_DEVICE = -2 };

/* The slot of a pool, entered if it is new, and its device: *device is that of the stream, for a pool of
 * which nobody knows. CUDA_ERROR_OUT_OF_MEMORY: it has no limit here. */
CUresult pool_find(CUmemoryPool handle, int *device, size_t *slot);

/* Bytes that the pool has reserved and nobody uses. */
uint64_t pool_unused(size_t slot);

/* Around a call that takes memory from the pool. Before it: `bound` was charged for what the pool may grow
 * by. After it: enters `size` bytes at the pointer (0: the call failed) and gives back what the pool did not
 * grow by; *missing is what it grew beyond all bounds, which is charged to it now and for the caller to take,
 * or to pool_uncharge.
 */
void pool_begin(size_t slot, uint64_t bound);
CUresult pool_end(size_t slot, uint64_t bound, CUdeviceptr address, uint64_t size, uint64_t *missing);
void pool_uncharge(size_t slot, uint64_t size);

/* Takes the entry of a pointer that came from a pool out, before it is freed. False: not from a pool. */
bool pool_remove(CUdeviceptr address, struct allocation *entry);

/* After the free: it failed; or it succeeded, and what the pool gave back to the driver is given back. */
void pool_restore(const struct allocation *entry);
void pool_freed(const struct allocation *entry);

/* Gives back what pools of the device gave back to the driver since the last time. With `trim`, lets them
 * give back first what nobody uses. Takes the pools' lock. */
void pool_reclaim(int device, bool trim);

#endif
