/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONVGPU_MODULE_H
#define CONVGPU_MODULE_H

#include "tables/driver.h"

/* The current context on the device of that number will use the library (0: none): promises its variables,
 * as far as they are known, unless that was done. CUDA_ERROR_OUT_OF_MEMORY: they cannot be had. May pause. */
CUresult module_promise_variables(int device, CUcontext context, const char *call, uint64_t library);

#endif
