/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays, whose layout the driver chooses and does not tell.
 */
#ifndef CONVGPU_ARRAY_H
#define CONVGPU_ARRAY_H

#include "tables/driver.h"

/* As memory_mark and its companions, for the arrays of a context. */
void array_mark(CUcontext context);
void array_unmark(CUcontext context);
void array_drop(CUcontext context, uint64_t *sizes);

#endif
