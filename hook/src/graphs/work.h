/* SPDX-License-Identifier: Apache-2.0
 *
 * What executable graphs take for their work when they are instantiated. The driver keeps it for the next
 * ones when a graph is destroyed, until the context ends: what cannot be had must not be taken.
 */
#ifndef CONVGPU_GRAPH_WORK_H
#define CONVGPU_GRAPH_WORK_H

#include "accounting/allocations.h"
#include "code/sample.h"

#include <stdint.h>

struct graph_work {
    struct sample in; /* where it is instantiated */
    uint64_t size;    /* bytes, at most */
    uint64_t charged; /* of these, beyond what graphs had before */
};

/* Charges what the driver does not have yet for graphs of this size; may pause. */
CUresult graph_work_open(struct graph_work *work);

/* It is not taken, and what was charged for it is given back. */
void graph_work_close(const struct graph_work *work);

/* The driver has taken it for `exec`: measured, if it can be. CUDA_ERROR_OUT_OF_MEMORY: it took more, which
 * cannot be had, and the graph is to be destroyed. */
CUresult graph_work_enter(struct graph_work *work, CUgraphExec exec);

/* Before `exec` is made one of `size` bytes, with as much beside it until then; and after. */
CUresult graph_work_open_update(struct graph_work *work, CUgraphExec exec, uint64_t size);
CUresult graph_work_enter_update(struct graph_work *work, CUgraphExec exec);

/* Around the end of an executable graph: before the driver's call; true if it was entered. And after one that
 * failed. */
bool graph_work_leave(CUgraphExec exec, struct allocation *entry);
void graph_work_stay(const struct allocation *entry);

#endif
