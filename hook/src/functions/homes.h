/* SPDX-License-Identifier: Apache-2.0
 *
 * The contexts of modules and of their functions: a graph's node runs in that of its function, whatever is
 * current when it is put there.
 */
#ifndef CONVGPU_HOMES_H
#define CONVGPU_HOMES_H

#include "tables/driver.h"

/* The module or function is of this context. Without a context or memory for the record, nobody knows. */
void homes_set(const void *object, CUcontext context);

/* The context; NULL: nobody knows, or it is ending. */
CUcontext homes_find(const void *object);

#endif
