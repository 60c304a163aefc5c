/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of loaded libraries, which belong to no context: each takes their variables and what
 * they call of the driver's code when it first needs them.
 */
#ifndef CONVGPU_LIBRARIES_H
#define CONVGPU_LIBRARIES_H

#include "accounting/allocations.h"
#include "code/sample.h"
#include "images/image.h"

/* A library that is loaded lazily is there. Without memory to note it, it is measured later. */
void libraries_add(uint64_t library, struct image_needs needs);

/* It is being unloaded: false if nothing was known of it. Then whether that was done. */
bool libraries_remove(uint64_t library, struct allocation *removed);
void libraries_removed(struct allocation removed, bool done);

/* The current context on the device of that number will use the library (0: none): promises its variables,
 * and what it calls of the driver's code, as far as they are known, unless that was done.
 * CUDA_ERROR_OUT_OF_MEMORY: they cannot be had. May pause. */
CUresult libraries_promise(int device, CUcontext context, const char *call, uint64_t library);

/* The library's code is there: what that took is measured. */
void libraries_settle(const struct sample *in, uint64_t library);

/* Who has a kernel may have its library loaded in the current context by calls that are not hooked: promises
 * that for one that calls the driver's code, as libraries_promise() does. */
CUresult libraries_promise_here(const char *call, uint64_t library);

#endif
