/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree. What a context's end does to it.
 */
#ifndef CONVGPU_MEMORY_H
#define CONVGPU_MEMORY_H

#include "driver.h"

/* Around a call that destroys `context`: before it; after it failed; after it succeeded, when what was
 * allocated in the context is given back. See allocations.h. */
void memory_mark(CUcontext context);
void memory_unmark(CUcontext context);
void memory_drop(CUcontext context);

void memory_reset(void);

#endif
