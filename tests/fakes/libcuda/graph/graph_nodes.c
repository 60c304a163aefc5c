/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph consists of.
 */
#include "libcuda/graph/graph.h"
#include "libcuda/module/module.h"

#include <stdlib.h>
#include <string.h>

void graph_depend(struct node *node, struct node *const *before, size_t count) {
    if (count == 0) return;
    node->before = malloc(count * sizeof(struct node *));
    if (node->before == NULL) abort(); /* this is a test double */
    memcpy(node->before, before, count * sizeof(struct node *));
    node->before_count = count;
}

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

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *parameters) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct node *node = handle_find(HANDLE_NODE, handle);
    bool valid = node != NULL && node->type == CU_GRAPH_NODE_TYPE_KERNEL && parameters != NULL;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct module *module = (struct module *)node->operation.module;
    *parameters = (CUDA_KERNEL_NODE_PARAMS){.function = &module->function[node->operation.kernel]};
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *graph) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct node *node = handle_find(HANDLE_NODE, handle);
    bool valid = node != NULL && node->child != NULL && graph != NULL;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *graph = node->child;
    return driver_leave(CUDA_SUCCESS);
}

/* An edge of a graph here never has data. */
CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, void *data, size_t *count) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct graph *graph = handle_find(HANDLE_GRAPH, handle);
    bool valid = graph != NULL && count != NULL && (from == NULL) == (to == NULL);
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    size_t there = 0;
    for (struct node *node = graph->nodes; node != NULL; node = node->next) {
        for (size_t index = 0; index < node->before_count; index++, there++) {
            if (from == NULL || there >= *count) continue;
            from[there] = node->before[index];
            to[there] = node;
        }
    }
    if (data != NULL && from != NULL) memset(data, 0, 8 * (there < *count ? there : *count));
    *count = from != NULL && there > *count ? *count : there;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}
