/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditional nodes. They can be instantiated here but not launched, and any handle is a condition.
 */
#include "libcuda/graph/graph.h"

#include <stdlib.h>

CUresult cuGraphConditionalHandleCreate(uint64_t *handle, CUgraph graph, CUcontext context, unsigned value,
                                        unsigned flags) {
    static uint64_t made;
    struct graph *found = NULL;
    CUresult result = graph_enter(graph, NULL, 0, &found);
    if (result != CUDA_SUCCESS) return result;
    (void)context, (void)value, (void)flags;
    if (handle != NULL) *handle = ++made;
    return driver_leave(handle == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

static void add_bodies(struct node *node, unsigned count) {
    node->bodies = calloc(count, sizeof(struct graph *));
    if (node->bodies == NULL) abort(); /* this is a test double */
    while (node->body_count < count) {
        struct graph *body = graph_new();
        if (body == NULL) abort();
        node->bodies[node->body_count++] = body;
    }
}

CUresult graph_add_conditional(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *dependencies,
                               size_t count, CUDA_CONDITIONAL_NODE_PARAMS *parameters) {
    struct graph *graph = NULL;
    CUresult result = graph_enter(graph_handle, dependencies, count, &graph);
    if (result != CUDA_SUCCESS) return result;
    unsigned most = parameters->type == CU_GRAPH_COND_TYPE_SWITCH  ? UINT32_MAX
                    : parameters->type == CU_GRAPH_COND_TYPE_IF    ? 2
                    : parameters->type == CU_GRAPH_COND_TYPE_WHILE ? 1
                                                                   : 0;
    bool valid = handle != NULL && parameters->count > 0 && parameters->count <= most;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *handle = graph_add_node(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    if (*handle == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    graph_depend(*handle, dependencies, count);
    add_bodies(*handle, parameters->count);
    parameters->bodies = (*handle)->bodies;
    return driver_leave(CUDA_SUCCESS);
}
