/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that graphs allocate when they are launched.
 */
#ifndef CONVGPU_GRAPH_H
#define CONVGPU_GRAPH_H

#include "tables/driver.h"

/* As memory_mark and its companions, for the executable graphs of a context. */
void graph_mark(CUcontext context);
void graph_unmark(CUcontext context);
void graph_drop(CUcontext context);

/* As pool_reclaim, for what the driver keeps for graphs. */
void graph_reclaim(int device, bool trim);

#endif
