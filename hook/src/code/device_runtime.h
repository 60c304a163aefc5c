/* SPDX-License-Identifier: Apache-2.0
 *
 * The device runtime, by which kernels launch kernels. With the first code that calls it a context takes 100
 * MiB and, for each launch that may be pending beyond 2,048 (CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT),
 * 9,400 bytes; the first until it ends, the others until that limit is lowered (seen on an H200, driver 580).
 */
#ifndef CONVGPU_DEVICE_RUNTIME_H
#define CONVGPU_DEVICE_RUNTIME_H

#include "code/sample.h"

/* A load of code that calls it, or a library with such code, begins or ends. With the last, what is promised
 * and not taken goes back, where that can be measured. */
void device_runtime_begin(void);
void device_runtime_end(void);

/* The current context will have code that calls it: promises it, unless that was done.
 * CUDA_ERROR_OUT_OF_MEMORY: it cannot be had. May pause. Between begin and end. */
CUresult device_runtime_promise(int device, CUcontext context, const char *call);

/* That code is there: what it took is measured, and nothing more of the promise is needed. */
void device_runtime_settle(const struct sample *in);

/* Bytes for so many pending launches. */
uint64_t device_runtime_launches(size_t count);

#endif
