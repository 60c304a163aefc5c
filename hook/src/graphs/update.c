/* SPDX-License-Identifier: Apache-2.0
 *
 * Executable graphs that are updated: kernels of larger parameters take more, on an H200 (driver 580) 64 KiB
 * for one of 30 kB. Nothing else does, so the graph is read only if there are such kernels. What was taken
 * cannot be undone: it is owed.
 */
#include "graphs/update.h"

#include "functions/parameters.h"
#include "graphs/contents.h"
#include "graphs/work.h"

CUresult graph_update(CUgraphExec exec, CUgraph graph, bool child, graph_change *change, void *arguments) {
    struct graph_work work;
    struct graph_contents contents = {.work = 0};
    bool wide = parameters_are_told() && parameters_most() > GRAPH_SMALL_PARAMETERS;
    if (wide) (void)graph_read(graph, &contents);
    CUresult result = graph_work_open_change(&work, exec, &contents, child);
    if (result != CUDA_SUCCESS) return result;
    result = change(arguments);
    if (result == CUDA_SUCCESS) return graph_work_enter_change(&work, exec);
    graph_work_close(&work);
    return result;
}

struct update {
    CUgraphExec exec;
    CUgraph graph;
    CUgraphNode node;
    void *error_node, *info;
};

static CUresult update_first_form(void *arguments) {
    const struct update *update = arguments;
    return DRIVER(cuGraphExecUpdate, update->exec, update->graph, update->error_node, update->info);
}

CUresult hooked_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, void *node, void *info) {
    struct update update = {.exec = exec, .graph = graph, .error_node = node, .info = info};
    return graph_update(exec, graph, false, update_first_form, &update);
}

static CUresult update_all(void *arguments) {
    const struct update *update = arguments;
    return DRIVER(cuGraphExecUpdate_v2, update->exec, update->graph, update->info);
}

CUresult hooked_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *info) {
    struct update update = {.exec = exec, .graph = graph, .info = info};
    return graph_update(exec, graph, false, update_all, &update);
}

static CUresult update_child(void *arguments) {
    const struct update *update = arguments;
    return DRIVER(cuGraphExecChildGraphNodeSetParams, update->exec, update->node, update->graph);
}

CUresult hooked_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
    struct update update = {.exec = exec, .graph = child, .node = node};
    return graph_update(exec, child, true, update_child, &update);
}
