/* SPDX-License-Identifier: Apache-2.0
 *
 * Local memory. Every thread that a device can run at a time gets a stack of the same size: that of the
 * context's limit, or that of the launched kernel that needed most, if it needed more (seen on an H200, to
 * the byte). So what a kernel will take is known before it runs.
 */
#ifndef CONVGPU_STACKS_H
#define CONVGPU_STACKS_H

#include "tables/driver.h"

/* The current context on the device of that number will run a kernel that needs `size` bytes a thread:
 * promises what is missing. CUDA_ERROR_OUT_OF_MEMORY: it cannot be had. May pause. */
CUresult stacks_raise(int device, CUcontext context, const char *call, uint64_t size);

/* Bytes that each thread of the current context has, or is promised. */
uint64_t stacks_level(CUcontext context);

/* The kernel for which they were raised does not run: gives back what is promised above `before`. */
void stacks_take_back(int device, CUcontext context, uint64_t before, uint64_t raised);

/* cuCtxSetLimit of the stack. */
CUresult stacks_set_limit(int device, CUcontext context, size_t size);

#endif
