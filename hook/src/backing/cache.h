/* SPDX-License-Identifier: Apache-2.0
 *
 * Freed ranges that stay mapped for the program's next allocation of the same size: a hit costs 0.5 us, the
 * driver 50 to 600 (measurements.md). They stay charged, so they are few and short-lived: see backing.c. The
 * mapping lock (ranges.h) is held, everywhere.
 */
#ifndef CONVGPU_CACHE_H
#define CONVGPU_CACHE_H

#include "tables/driver.h"

enum { CACHE_ANY_DEVICE = -1 };

/* Keeps a range. False, and nothing happened, when the cache has no room for one more. */
bool cache_put(CUdeviceptr address, uint64_t size, int device, CUcontext context);

/* Takes the newest range of exactly this kind out. Returns its address, or 0. */
CUdeviceptr cache_take(uint64_t size, int device, CUcontext context);

/* Takes the oldest range of the device out, if it was put there `age` ms ago or earlier. Or 0. */
CUdeviceptr cache_take_oldest(int device, int64_t age);

/* Takes this range out, if it is there. */
void cache_forget(CUdeviceptr address);

/* Bytes that are kept of the device. */
uint64_t cache_size(int device);

/* Whether nothing is kept; read without the lock, to pass by quickly. */
bool cache_is_empty(void);

#endif
