/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that are put into graphs by hand, in the bodies of conditional nodes too. What they need is
 * promised here, whether the graph is ever launched or not: its launches are not looked at. Those of a
 * capture are launches (launch.h).
 */
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "code/launch.h"
#include "functions/parameters.h"
#include "graphs/contents.h"
#include "scheduler/session.h"

enum { CHANGES = 32 };

/* A node's first form has no kernel: it is read only without a function, which that form cannot be. */
static CUresult record(const struct kernel_node *node, bool first_form) {
    if (!node) return CUDA_SUCCESS;
    if (node->function || first_form) return launch_record((word)(uintptr_t)node->function, NULL);
    return launch_record((word)(uintptr_t)node->kernel, node->context);
}

static CUresult record_any(const struct node_parameters *node) {
    return node && node->type == NODE_KERNEL ? record(&node->kernel, false) : CUDA_SUCCESS;
}

/* The current device, if a node of an executable graph may take more there when it is given another kernel:
 * one of larger parameters takes up to 64 KiB (H200, driver 580). Else DEVICE_UNKNOWN. */
static int growing_device(void) {
    CUcontext context;
    int device = DEVICE_UNKNOWN;
    if (parameters_most() <= GRAPH_SMALL_PARAMETERS || !session_is_open()) return DEVICE_UNKNOWN;
    return device_current(&context, &device) == CUDA_SUCCESS ? device : DEVICE_UNKNOWN;
}

/* Programs change nodes by the thousand: it is measured every 32nd time. What cannot be had is owed, and
 * nothing is changed before it is had. */
static CUresult changed(CUresult result, int device, const char *call) {
    static _Atomic unsigned changes;
    bool due = result == CUDA_SUCCESS && device >= 0 && ++changes % CHANGES == 0;
    return due ? growth_charge_now(device, call) : result;
}

#define RECORDED(looked, symbol, ...)                                                                        \
    CUresult result = looked;                                                                                \
    return result == CUDA_SUCCESS ? DRIVER(symbol, __VA_ARGS__) : result

#define CHANGED(looked, symbol, ...)                                                                         \
    CUresult result = looked;                                                                                \
    int device = growing_device();                                                                           \
    if (result == CUDA_SUCCESS) result = growth_charge_owed(device, #symbol);                                \
    return result == CUDA_SUCCESS ? changed(DRIVER(symbol, __VA_ARGS__), device, #symbol) : result

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
    CHANGED(record(parameters, true), cuGraphExecKernelNodeSetParams, exec, node, parameters);
}

CUresult hooked_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                  const struct kernel_node *parameters) {
    CHANGED(record(parameters, false), cuGraphExecKernelNodeSetParams_v2, exec, node, parameters);
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
    CHANGED(record_any(parameters), cuGraphExecNodeSetParams, exec, node, parameters);
}
