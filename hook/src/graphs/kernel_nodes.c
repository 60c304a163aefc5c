/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that are put into graphs by hand, in the bodies of conditional nodes too. What they need is
 * promised here, whether the graph is ever launched or not: its launches are not looked at. Those of a
 * capture are launches (launch.h).
 */
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "code/launch.h"
#include "functions/functions.h"
#include "functions/parameters.h"
#include "graphs/bodies.h"
#include "graphs/contents.h"
#include "graphs/update.h"
#include "graphs/work.h"
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

static word kernel_of(const struct kernel_node *node, bool *library) {
    *library = !node->function;
    return (word)(uintptr_t)(node->function ? node->function : node->kernel);
}

/* The device of an executable graph of which a node is given another kernel, if that may take more: one of
 * large parameters takes up to 64 KiB (H200, driver 580). Else DEVICE_UNKNOWN. */
static int growing_device(CUgraphExec exec, const struct kernel_node *node, bool first_form) {
    bool library;
    if (!parameters_are_told() || !session_is_open() || !node) return DEVICE_UNKNOWN;
    if (first_form && !node->function) return DEVICE_UNKNOWN;
    word kernel = kernel_of(node, &library);
    library = library || functions_library(kernel) != 0;
    return parameters_of(kernel, library) > GRAPH_SMALL_PARAMETERS ? graph_work_device(exec) : DEVICE_UNKNOWN;
}

/* Whether the device's free memory fell since it was last looked at here; true if nobody can tell. */
static bool fell(int device) {
    static _Atomic size_t last[CONVGPU_MAX_DEVICES];
    struct sample now = sample_take();
    if (now.device != device || !now.seen) return true;
    size_t before = last[device];
    last[device] = now.unused;
    return before == 0 || now.unused < before;
}

/* Programs change nodes by the thousand: it is measured every 32nd time, if the free memory fell. What cannot
 * be had is owed, and nothing is changed before it is had. */
static CUresult changed(CUresult result, int device, const char *call) {
    static _Atomic unsigned changes[CONVGPU_MAX_DEVICES];
    bool due = result == CUDA_SUCCESS && device >= 0 && ++changes[device] % CHANGES == 0;
    return due && fell(device) ? growth_charge_now(device, call) : result;
}

static CUresult added(CUresult result, const CUgraphNode *node, const struct node_parameters *parameters) {
    bool bodies = result == CUDA_SUCCESS && parameters->type == NODE_CONDITIONAL;
    if (bodies) bodies_set(*node, &parameters->conditional);
    return result;
}

#define RECORDED(looked, symbol, ...)                                                                        \
    CUresult result = looked;                                                                                \
    return result == CUDA_SUCCESS ? DRIVER(symbol, __VA_ARGS__) : result

#define CHANGED(node, first_form, symbol, ...)                                                               \
    int device = growing_device(exec, node, first_form);                                                     \
    CUresult result = record(node, first_form);                                                              \
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
    CHANGED(parameters, true, cuGraphExecKernelNodeSetParams, exec, node, parameters);
}

CUresult hooked_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                  const struct kernel_node *parameters) {
    CHANGED(parameters, false, cuGraphExecKernelNodeSetParams_v2, exec, node, parameters);
}

CUresult hooked_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes, size_t count,
                               struct node_parameters *parameters) {
    CUresult result = record_any(parameters);
    if (result == CUDA_SUCCESS) result = DRIVER(cuGraphAddNode, node, graph, nodes, count, parameters);
    return added(result, node, parameters);
}

CUresult hooked_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
                                  const void *edges, size_t count, struct node_parameters *parameters) {
    CUresult result = record_any(parameters);
    if (result == CUDA_SUCCESS)
        result = DRIVER(cuGraphAddNode_v2, node, graph, nodes, edges, count, parameters);
    return added(result, node, parameters);
}

CUresult hooked_cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
                                  const void *edges, size_t count, struct node_parameters *parameters) {
    CUresult result = record_any(parameters);
    if (result == CUDA_SUCCESS)
        result = DRIVER(cuGraphAddNode_v3, node, graph, nodes, edges, count, parameters);
    return added(result, node, parameters);
}

CUresult hooked_cuGraphNodeSetParams(CUgraphNode node, struct node_parameters *parameters) {
    RECORDED(record_any(parameters), cuGraphNodeSetParams, node, parameters);
}

CUresult hooked_cuGraphNodeSetParams_v2(CUgraphNode node, struct node_parameters *parameters) {
    RECORDED(record_any(parameters), cuGraphNodeSetParams_v2, node, parameters);
}

struct node_change {
    CUgraphExec exec;
    CUgraphNode node;
    struct node_parameters *parameters;
};

static CUresult change_node(void *arguments) {
    const struct node_change *change = arguments;
    return DRIVER(cuGraphExecNodeSetParams, change->exec, change->node, change->parameters);
}

CUresult hooked_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         struct node_parameters *parameters) {
    struct node_change change = {exec, node, parameters};
    if (parameters && parameters->type == NODE_CHILD)
        return graph_update(exec, parameters->child, true, change_node, &change);
    if (!parameters || parameters->type != NODE_KERNEL) return change_node(&change);
    CHANGED(&parameters->kernel, false, cuGraphExecNodeSetParams, exec, node, parameters);
}
