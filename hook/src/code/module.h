/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONVGPU_MODULE_H
#define CONVGPU_MODULE_H

#include "code/sample.h"

/* The current context on the device of that number will use the library (0: none): promises its variables,
 * and the device runtime if it calls that, as far as they are known, unless that was done.
 * CUDA_ERROR_OUT_OF_MEMORY: they cannot be had. May pause. */
CUresult module_promise(int device, CUcontext context, const char *call, uint64_t library);

/* The library's code is there, and what that took was measured. */
void module_settle(const struct sample *in, uint64_t library);

#endif
