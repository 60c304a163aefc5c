/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations of a container with backing=unified: managed memory, which may be more than the device has. The
 * device is its preferred place, and what there is room for is brought there in one prefetch each; the rest
 * stays on the host, comes as kernels touch it, and is brought when a free makes room. The container has its
 * device alone, so that nobody else's memory is pushed out.
 */
#ifndef CONVGPU_UNIFIED_H
#define CONVGPU_UNIFIED_H

#include "tables/driver.h"

/* Whether an allocation of so many bytes is managed memory: others stay with the driver, which packs them. */
bool unified_takes(uint64_t bytes);

/* The driver's part of an allocation, in the current context. */
CUresult unified_allocate(CUdeviceptr *address, size_t size);

/* After the driver freed managed memory, the program's own too: brings what has room now. */
void unified_freed(CUdeviceptr address);

/* The context of an allocation has ended, and its memory with it. */
void unified_forget(CUdeviceptr address);

#endif
