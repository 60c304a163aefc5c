/* SPDX-License-Identifier: Apache-2.0
 *
 * Executable graphs that are updated: kernels of larger parameters take more, on an H200 (driver 580) 64 KiB
 * for one of 30 kB. Nothing else does, so the graph is read only if there are such kernels. What was taken
 * cannot be undone: it is owed.
 */
#include "functions/parameters.h"
#include "graphs/contents.h"
#include "graphs/work.h"
#include "tables/driver.h"

static CUresult open_update(struct graph_work *work, CUgraphExec exec, CUgraph graph) {
    struct graph_contents contents = {.work = 0};
    work->in = sample_take();
    if (parameters_most() > GRAPH_SMALL_PARAMETERS) (void)graph_read(graph, &contents);
    return graph_work_open_update(work, exec, contents.work);
}

static CUresult end_update(struct graph_work *work, CUgraphExec exec, CUresult result) {
    if (result == CUDA_SUCCESS) return graph_work_enter_update(work, exec);
    graph_work_close(work);
    return result;
}

CUresult hooked_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, void *node, void *info) {
    struct graph_work work;
    CUresult result = open_update(&work, exec, graph);
    if (result != CUDA_SUCCESS) return result;
    return end_update(&work, exec, DRIVER(cuGraphExecUpdate, exec, graph, node, info));
}

CUresult hooked_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *info) {
    struct graph_work work;
    CUresult result = open_update(&work, exec, graph);
    if (result != CUDA_SUCCESS) return result;
    return end_update(&work, exec, DRIVER(cuGraphExecUpdate_v2, exec, graph, info));
}
