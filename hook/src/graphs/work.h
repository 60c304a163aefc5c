/* SPDX-License-Identifier: Apache-2.0
 *
 * What executable graphs take for their work when they are instantiated. The driver keeps it for the next
 * ones when a graph is destroyed, until the context ends: what cannot be had must not be taken.
 */
#ifndef CONVGPU_GRAPH_WORK_H
#define CONVGPU_GRAPH_WORK_H

#include "accounting/allocations.h"
#include "code/sample.h"
#include "graphs/contents.h"

#include <stdint.h>

/* One call that makes an executable graph, or changes one. It stays where it is from its beginning to its
 * end. */
struct graph_work {
    struct sample in;  /* where it is made */
    bool pushed;       /* the context is current for this call only */
    uint64_t expected; /* bytes that the executable graph takes then, at most */
    uint64_t size;     /* bytes that the call takes of what the context has for graphs, at most */
    uint64_t charged;  /* of these, beyond what it had before */
};

/* Charges what the context does not have yet for a graph of these contents; may pause. Then either the call
 * has failed, or `exec` is there, which took it: it is measured, if it can be. CUDA_ERROR_OUT_OF_MEMORY from
 * the latter: it took more, which cannot be had, and it is to be destroyed. */
CUresult graph_work_open(struct graph_work *work, const struct graph_contents *contents);
void graph_work_close(struct graph_work *work);
CUresult graph_work_enter(struct graph_work *work, CUgraphExec exec);

/* The driver has made it, and it is destroyed again: what it took stays. */
void graph_work_abandon(struct graph_work *work);

/* The same around a change of `exec` into a graph of these contents, or (`child`) of a part of it into that;
 * in its context. What was taken and cannot be had is owed. */
CUresult graph_work_open_change(struct graph_work *work, CUgraphExec exec,
                                const struct graph_contents *contents, bool child);
CUresult graph_work_enter_change(struct graph_work *work, CUgraphExec exec);

/* The device of an executable graph; DEVICE_UNKNOWN: nobody knows. */
int graph_work_device(CUgraphExec exec);

/* Around the end of an executable graph: before the driver's call; true if it was entered. And after one that
 * failed. */
bool graph_work_leave(CUgraphExec exec, struct allocation *entry);
void graph_work_stay(const struct allocation *entry);

#endif
