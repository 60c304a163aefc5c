/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph consists of.
 */
#include "libcuda/graph/graph.h"

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct graph *graph = handle_find(HANDLE_GRAPH, handle);
    if (graph == NULL || count == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    size_t written = 0;
    for (struct node *node = graph->nodes; nodes != NULL && node != NULL && written < *count;
         node = node->next)
        nodes[written++] = node;
    for (size_t index = written; nodes != NULL && index < *count; index++) nodes[index] = NULL;
    *count = nodes == NULL ? graph->count : written;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, int *type) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct node *node = handle_find(HANDLE_NODE, handle);
    if (node == NULL || type == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *type = node->type;
    return driver_leave(CUDA_SUCCESS);
}
