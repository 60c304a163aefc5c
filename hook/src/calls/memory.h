/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree. What a context's end does to it.
 */
#ifndef CONVGPU_MEMORY_H
#define CONVGPU_MEMORY_H

#include "tables/driver.h"

/* Around a call that destroys `context`: before it; after it failed; after it succeeded, when what was
 * allocated in the context is given back. See allocations.h. */
void memory_mark(CUcontext context);
void memory_unmark(CUcontext context);
void memory_drop(CUcontext context);

/* A synchronisation has ended, with a stream or with everything: what was freed until then in the stream, or
 * in a default one, is the device's again. */
void memory_synchronised(CUstream stream);
void memory_synchronised_all(void);

#endif
