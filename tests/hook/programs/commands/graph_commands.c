/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs whose nodes allocate memory, capture, and green contexts.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

#define CALL(symbol, ...) ((CUresult (*)(__VA_ARGS__))driver_symbol(#symbol))

static CUresult new_graph(uint64_t *graph) {
    return CALL(cuGraphCreate, uint64_t *, unsigned)(graph, 0);
}

/* addalloc GRAPH SIZE ORDINAL: prints the address. */
static CUresult add_allocation(const size_t *number, uint64_t *address) {
    uint64_t node;
    struct allocation_node parameters = {
        .pool = {.type = 1, .location = {.type = LOCATION_DEVICE, .ordinal = (int)number[2]}},
        .size = number[1]};
    CUresult result = CALL(cuGraphAddMemAllocNode, uint64_t *, uint64_t, const void *, size_t,
                           struct allocation_node *)(&node, number[0], NULL, 0, &parameters);
    if (result == CUDA_SUCCESS) *address = parameters.address;
    return result;
}

static CUresult add_free(const size_t *number) {
    uint64_t node;
    return CALL(cuGraphAddMemFreeNode, uint64_t *, uint64_t, const void *, size_t,
                uint64_t)(&node, number[0], NULL, 0, number[1]);
}

/* conditional GRAPH COUNT FORM: a switch of so many bodies, by the first call or the second; prints the last
 * body. */
static CUresult add_conditional(const size_t *number, uint64_t *body) {
    CUgraphNode node;
    union {
        struct node_parameters parameters;
        uint64_t room[32];
    } made = {
        .parameters = {.type = NODE_CONDITIONAL, .conditional = {.type = 2, .count = (unsigned)number[1]}}};
    CUgraph graph = (CUgraph)number[0];
    CUresult result = number[2] == 1 ? cuda.cuGraphAddNode(&node, graph, NULL, 0, &made.parameters)
                                     : cuda.cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &made.parameters);
    if (result == CUDA_SUCCESS) *body = (uint64_t)made.parameters.conditional.bodies[number[1] - 1];
    return result;
}

/* instantiate GRAPH FORM: 1, 2, flags (3), parameters (4), and their per-thread twin (5). */
static CUresult instantiate(const size_t *number, uint64_t *written) {
    CUgraph graph = (CUgraph)number[0];
    CUgraphExec *exec = (CUgraphExec *)written;
    struct {
        uint64_t flags, stream, node;
        int result;
    } parameters = {0};
    switch (number[1]) {
    case 1:
        return cuda.cuGraphInstantiate(exec, graph, NULL, NULL, 0);
    case 2:
        return cuda.cuGraphInstantiate_v2(exec, graph, NULL, NULL, 0);
    case 3:
        return cuda.cuGraphInstantiateWithFlags(exec, graph, 0);
    case 4:
        return cuda.cuGraphInstantiateWithParams(exec, graph, &parameters);
    default:
        return cuda.cuGraphInstantiateWithParams_ptsz(exec, graph, &parameters);
    }
}

/* newgreen ORDINAL: with all multiprocessors. */
static CUresult new_green(CUdevice ordinal, uint64_t *green) {
    char resource[144];
    void *description = NULL;
    CUresult result = CALL(cuDeviceGetDevResource, CUdevice, void *, int)(ordinal, resource, 1);
    if (result == CUDA_SUCCESS)
        result = CALL(cuDevResourceGenerateDesc, void **, void *, unsigned)(&description, resource, 1);
    return result == CUDA_SUCCESS ? cuda.cuGreenCtxCreate((CUgreenCtx *)green, description, ordinal, 1)
                                  : result;
}

/* update EXEC GRAPH FORM, setchild EXEC NODE GRAPH, addempties GRAPH COUNT among them */
CUresult run_graph(const char *command, const size_t *number, char *values) {
    CUresult result = -1;
    uint64_t written = 0x5a5a;
    char info[64];
    if (strcmp(command, "addfree") == 0) return add_free(number);
    if (strcmp(command, "destroyexec") == 0) return cuda.cuGraphExecDestroy((CUgraphExec)number[0]);
    if (strcmp(command, "trimgraphs") == 0) return cuda.cuDeviceGraphMemTrim((CUdevice)number[0]);
    if (strcmp(command, "launch") == 0) return CALL(cuGraphLaunch, uint64_t, uint64_t)(number[0], number[1]);
    if (strcmp(command, "capture") == 0) return CALL(cuStreamBeginCapture_v2, uint64_t, int)(number[0], 2);
    if (strcmp(command, "destroygreen") == 0) return cuda.cuGreenCtxDestroy((CUgreenCtx)number[0]);
    if (strcmp(command, "setchild") == 0)
        return cuda.cuGraphExecChildGraphNodeSetParams((CUgraphExec)number[0], (CUgraphNode)number[1],
                                                       (CUgraph)number[2]);
    if (strcmp(command, "update") == 0)
        return number[2] == 1 ? cuda.cuGraphExecUpdate((CUgraphExec)number[0], (CUgraph)number[1], info, info)
                              : cuda.cuGraphExecUpdate_v2((CUgraphExec)number[0], (CUgraph)number[1], info);
    if (strcmp(command, "newgreen") == 0) result = new_green((CUdevice)number[0], &written);
    if (strcmp(command, "greenstream") == 0)
        result = cuda.cuGreenCtxStreamCreate((CUstream *)&written, (CUgreenCtx)number[0], 1, 0);
    if (strcmp(command, "prioritystream") == 0)
        result = cuda.cuStreamCreateWithPriority((CUstream *)&written, 1, -1);
    if (strcmp(command, "endstream") == 0) return cuda.cuStreamDestroy_v2((CUstream)number[0]);
    if (strcmp(command, "fromgreen") == 0)
        result = cuda.cuCtxFromGreenCtx((CUcontext *)&written, (CUgreenCtx)number[0]);
    if (strcmp(command, "graph") == 0) result = new_graph(&written);
    if (strcmp(command, "addchild") == 0)
        result = CALL(cuGraphAddChildGraphNode, uint64_t *, uint64_t, const void *, size_t,
                      uint64_t)(&written, number[0], NULL, 0, number[1]);
    for (size_t index = 0; strcmp(command, "addempties") == 0 && index < number[1]; index++)
        result = CALL(cuGraphAddEmptyNode, uint64_t *, uint64_t, const void *, size_t)(&written, number[0],
                                                                                       NULL, 0);
    if (strcmp(command, "conditional") == 0) result = add_conditional(number, &written);
    if (strcmp(command, "addalloc") == 0) result = add_allocation(number, &written);
    if (strcmp(command, "instantiate") == 0) result = instantiate(number, &written);
    if (strcmp(command, "endcapture") == 0)
        result = CALL(cuStreamEndCapture, uint64_t, uint64_t *)(number[0], &written);
    if (result != -1) sprintf(values, " %#lx", (unsigned long)written);
    return result;
}
