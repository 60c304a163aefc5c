/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's own code for kernels: printf, assert, malloc, and the device runtime, by which kernels launch
 * kernels (images/driver_calls.h). With the first code that calls it a context takes 64 to 160 MiB, until it
 * ends, and for each launch that may be pending beyond 2,048 (CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT)
 * 9,400 bytes, until that limit is lowered (seen on an H200, driver 580). `calls`: a set of those bits.
 */
#ifndef CONVGPU_DRIVER_CODE_H
#define CONVGPU_DRIVER_CODE_H

#include "code/sample.h"

/* A load of code that calls it, or a library with such code, begins or ends. With the last, what is promised
 * and not taken goes back, where that can be measured. */
void driver_code_begin(void);
void driver_code_end(void);

/* The context will have code that calls it, next of all: promises what lacks.
 * CUDA_ERROR_OUT_OF_MEMORY: it cannot be had. May pause. Between begin and end. */
CUresult driver_code_promise(int device, CUcontext context, const char *call, unsigned calls);

/* That code is there: what it took is measured, and nothing more of its promise is needed. */
void driver_code_settle(const struct sample *in, unsigned calls);

/* Bytes for so many pending launches. */
uint64_t driver_code_launches(size_t count);

#endif
