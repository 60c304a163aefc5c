/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that are put into graphs by hand, in the bodies of conditional nodes too. What they need is
 * promised here, whether the graph is ever launched or not: its launches are not looked at. Those of a
 * capture are launches (launch.h).
 */
#include "code/launch.h"

/* A node's first form has no kernel: it is read only without a function, which that form cannot be. */
static CUresult record(const struct kernel_node *node, bool first_form) {
    if (!node) return CUDA_SUCCESS;
    if (node->function || first_form) return launch_record((word)(uintptr_t)node->function, NULL);
    return launch_record((word)(uintptr_t)node->kernel, node->context);
}

static CUresult record_any(const struct node_parameters *node) {
    return node && node->type == NODE_KERNEL ? record(&node->kernel, false) : CUDA_SUCCESS;
}

#define RECORDED(looked, symbol, ...)                                                                        \
    CUresult result = looked;                                                                                \
    return result == CUDA_SUCCESS ? DRIVER(symbol, __VA_ARGS__) : result

CUresult hooked_cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes, size_t count,
                                     const struct kernel_node *parameters) {
    RECORDED(record(parameters, true), cuGraphAddKernelNode, node, graph, nodes, count, parameters);
}

CUresult hooked_cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
                                        size_t count, const struct kernel_node *parameters) {
    RECORDED(record(parameters, false), cuGraphAddKernelNode_v2, node, graph, nodes, count, parameters);
}

CUresult hooked_cuGraphKernelNodeSetParams(CUgraphNode node, const struct kernel_node *parameters) {
    RECORDED(record(parameters, true), cuGraphKernelNodeSetParams, node, parameters);
}

CUresult hooked_cuGraphKernelNodeSetParams_v2(CUgraphNode node, const struct kernel_node *parameters) {
    RECORDED(record(parameters, false), cuGraphKernelNodeSetParams_v2, node, parameters);
}

CUresult hooked_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const struct kernel_node *parameters) {
    RECORDED(record(parameters, true), cuGraphExecKernelNodeSetParams, exec, node, parameters);
}

CUresult hooked_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                  const struct kernel_node *parameters) {
    RECORDED(record(parameters, false), cuGraphExecKernelNodeSetParams_v2, exec, node, parameters);
}

CUresult hooked_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes, size_t count,
                               struct node_parameters *parameters) {
    RECORDED(record_any(parameters), cuGraphAddNode, node, graph, nodes, count, parameters);
}

CUresult hooked_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
                                  const void *edges, size_t count, struct node_parameters *parameters) {
    RECORDED(record_any(parameters), cuGraphAddNode_v2, node, graph, nodes, edges, count, parameters);
}

CUresult hooked_cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
                                  const void *edges, size_t count, struct node_parameters *parameters) {
    RECORDED(record_any(parameters), cuGraphAddNode_v3, node, graph, nodes, edges, count, parameters);
}

CUresult hooked_cuGraphNodeSetParams(CUgraphNode node, struct node_parameters *parameters) {
    RECORDED(record_any(parameters), cuGraphNodeSetParams, node, parameters);
}

CUresult hooked_cuGraphNodeSetParams_v2(CUgraphNode node, struct node_parameters *parameters) {
    RECORDED(record_any(parameters), cuGraphNodeSetParams_v2, node, parameters);
}

CUresult hooked_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         struct node_parameters *parameters) {
    RECORDED(record_any(parameters), cuGraphExecNodeSetParams, exec, node, parameters);
}
