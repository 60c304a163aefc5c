/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs and their nodes. Nodes of copies and fills come by capture only, and of kernels
 * with arguments.
 */
#include "libcuda/graph/graph.h"
#include "libcuda/module/module.h"

#include <stdlib.h>

#define PAGE    (UINT64_C(2) << 20) /* alignment of addresses */
#define LARGEST (UINT64_C(1) << 46) /* bytes that there are addresses for */

static struct node *allocations; /* nodes that allocate, of all graphs */

struct graph *graph_new(void) {
    struct graph *graph = handle_new(HANDLE_GRAPH, sizeof *graph);
    if (graph != NULL) graph->references = 1;
    return graph;
}

static void end_node(struct node *node) {
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        struct node **link = &allocations;
        while (*link != node) link = &(*link)->next_allocation;
        *link = node->next_allocation;
        if (node->range != NULL) blocks_give_range(&driver.blocks, node->range);
    }
    if (node->child != NULL) graph_unreference(node->child);
    for (unsigned index = 0; index < node->body_count; index++) graph_destroy(node->bodies[index]);
    free(node->bodies);
    free(node->before);
    handle_free(node);
}

void graph_unreference(struct graph *graph) {
    if (--graph->references > 0) return;
    for (struct node *node = graph->nodes, *next; node != NULL; node = next) {
        next = node->next;
        node->graph = NULL;
        if (node->live == NULL) end_node(node); /* else when it is freed */
    }
    handle_free(graph);
}

void graph_destroy(struct graph *graph) {
    handle_forget(graph);
    for (struct node *node = graph->nodes; node != NULL; node = node->next) handle_forget(node);
    graph_unreference(graph);
}

struct node *graph_add_node(struct graph *graph, int type) {
    struct node *node = handle_new(HANDLE_NODE, sizeof *node), **link = &graph->nodes;
    if (node == NULL) return NULL;
    node->type = type;
    node->graph = graph;
    while (*link != NULL) link = &(*link)->next;
    *link = node;
    graph->count++;
    return node;
}

CUresult graph_add_allocation(struct graph *graph, CUdevice device, uint64_t size, struct node **node) {
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (size > LARGEST)
        return CUDA_ERROR_OUT_OF_MEMORY; /* what only the device lacks is refused at the launch */
    struct node *old = allocations;
    while (old != NULL && !(old->graph == graph && old->freed_here && old->size == size))
        old = old->next_allocation;
    struct block *range = old ? NULL : blocks_take_range(&driver.blocks, (size + PAGE - 1) / PAGE * PAGE);
    *node = graph_add_node(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    if ((range == NULL && old == NULL) || *node == NULL) abort(); /* this is a test double */
    (*node)->device = device;
    (*node)->size = size;
    (*node)->range = range;
    (*node)->address = old ? old->address : range->address;
    (*node)->next_allocation = allocations;
    allocations = *node;
    return CUDA_SUCCESS;
}

CUresult graph_add_operation(struct graph *graph, const struct operation *operation, struct node **node) {
    static const int type[] = {[OPERATION_NOTHING] = CU_GRAPH_NODE_TYPE_EMPTY,
                               [OPERATION_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
                               [OPERATION_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
                               [OPERATION_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
                               [OPERATION_HOST] = CU_GRAPH_NODE_TYPE_HOST};
    *node = graph_add_node(graph, type[operation->kind]);
    if (*node == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    (*node)->operation = *operation;
    return CUDA_SUCCESS;
}

CUresult graph_add_captured(struct graph *graph, const struct operation *operation) {
    struct node *last = graph->nodes, *node = NULL;
    while (last != NULL && last->next != NULL) last = last->next;
    CUresult result = graph_add_operation(graph, operation, &node);
    if (result == CUDA_SUCCESS && last != NULL) graph_depend(node, &last, 1);
    return result;
}

CUresult graph_add_free(struct graph *graph, uint64_t address, struct node **node) {
    struct node *allocation = allocations;
    while (allocation != NULL && allocation->address != address) allocation = allocation->next_allocation;
    if (allocation == NULL || allocation->freed_here) return CUDA_ERROR_INVALID_VALUE;
    bool here = allocation->graph == graph;
    if (here && allocation->freed_elsewhere) return CUDA_ERROR_INVALID_VALUE;
    *node = graph_add_node(graph, CU_GRAPH_NODE_TYPE_MEM_FREE);
    if (*node == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    (*node)->address = address;
    allocation->freed_here |= here;
    allocation->freed_elsewhere |= !here;
    return CUDA_SUCCESS;
}

CUresult graph_start(struct node *node, struct graph_hold *hold) {
    struct block *block = blocks_add_at(&driver.blocks, node->address, node->size, node, &node->live);
    if (block == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    block->kind = BLOCK_GRAPH;
    node->hold = hold;
    hold->live++;
    return CUDA_SUCCESS;
}

void graph_free(struct block *block) {
    struct node *node = block->owner;
    node->hold->live--;
    graph_release(node->hold);
    blocks_remove(&driver.blocks, block, &node->live);
    if (node->graph == NULL) end_node(node);
}

void graph_end_live(CUdevice device) {
    for (struct node *node = allocations, *next; node != NULL; node = next) {
        next = node->next_allocation;
        if (node->device == device && node->live != NULL) graph_free(node->live);
    }
}

CUresult cuGraphCreate(CUgraph *handle, unsigned flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || flags != 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *handle = graph_new();
    return driver_leave(*handle == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph handle) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct graph *graph = handle_find(HANDLE_GRAPH, handle);
    if (graph == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    graph_destroy(graph);
    return driver_leave(CUDA_SUCCESS);
}

CUresult graph_enter(CUgraph handle, const CUgraphNode *dependencies, size_t count, struct graph **graph) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *graph = handle_find(HANDLE_GRAPH, handle);
    bool valid = *graph != NULL && (dependencies != NULL || count == 0);
    for (size_t i = 0; valid && i < count; i++) {
        const struct node *node = handle_find(HANDLE_NODE, dependencies[i]);
        valid = node != NULL && node->graph == *graph;
    }
    return valid ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *dependencies,
                             size_t count) {
    struct graph *graph = NULL;
    CUresult result = graph_enter(graph_handle, dependencies, count, &graph);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *handle = graph_add_node(graph, CU_GRAPH_NODE_TYPE_EMPTY);
    if (*handle != NULL) graph_depend(*handle, dependencies, count);
    return driver_leave(*handle == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

/* Here it is not copied, and can be instantiated but not launched. */
CUresult cuGraphAddChildGraphNode(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *dependencies,
                                  size_t count, CUgraph child_handle) {
    struct graph *graph = NULL;
    CUresult result = graph_enter(graph_handle, dependencies, count, &graph);
    if (result != CUDA_SUCCESS) return result;
    struct graph *child = handle_find(HANDLE_GRAPH, child_handle);
    if (handle == NULL || child == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *handle = graph_add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH);
    if (*handle == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    graph_depend(*handle, dependencies, count);
    (*handle)->child = child;
    child->references++;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult add_kernel(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *dependencies,
                           size_t count, const struct function *function) {
    struct graph *graph = NULL;
    CUresult result = graph_enter(graph_handle, dependencies, count, &graph);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || function == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (function->kernel != KERNEL_NONE)
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED); /* with arguments, here */
    const struct operation operation = {
        .kind = OPERATION_KERNEL, .lasts = function->module->lasts, .module = function->module};
    result = graph_add_operation(graph, &operation, handle);
    if (result == CUDA_SUCCESS) graph_depend(*handle, dependencies, count);
    return driver_leave(result);
}

CUresult cuGraphAddKernelNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS *parameters) {
    return add_kernel(handle, graph, dependencies, count, parameters == NULL ? NULL : parameters->function);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *parameters) {
    const struct function *function = parameters == NULL ? NULL : parameters->function;
    if (parameters != NULL && function == NULL) function = parameters->kernel;
    return add_kernel(handle, graph, dependencies, count, function);
}

static bool valid_parameters(const CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    const CUmemPoolProps *pool = &parameters->pool;
    return pool->allocation_type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           pool->handle_types == CU_MEM_HANDLE_TYPE_NONE &&
           pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE && pool->location.id >= 0 &&
           pool->location.id < driver.device_count &&
           (parameters->access != NULL || parameters->access_count == 0);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    struct graph *graph = NULL;
    CUresult result = graph_enter(graph_handle, dependencies, count, &graph);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || parameters == NULL || !valid_parameters(parameters)) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct node *node = NULL;
    result = graph_add_allocation(graph, parameters->pool.location.id, parameters->size, &node);
    if (result != CUDA_SUCCESS) return driver_leave(result);
    graph_depend(node, dependencies, count);
    parameters->address = node->address;
    *handle = node;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *dependencies,
                               size_t count, CUdeviceptr address) {
    struct graph *graph = NULL;
    CUresult result = graph_enter(graph_handle, dependencies, count, &graph);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    result = graph_add_free(graph, address, handle);
    if (result == CUDA_SUCCESS) graph_depend(*handle, dependencies, count);
    return driver_leave(result);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct node *node = handle_find(HANDLE_NODE, handle);
    bool valid = node != NULL && node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && parameters != NULL;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *parameters = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .pool = {.allocation_type = CU_MEM_ALLOCATION_TYPE_PINNED,
                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = node->device}},
        .size = node->size,
        .address = node->address,
    };
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *address) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct node *node = handle_find(HANDLE_NODE, handle);
    bool valid = node != NULL && node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && address != NULL;
    if (valid) *address = node->address;
    return driver_leave(valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *parameters) {
    switch (parameters == NULL ? -1 : parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &parameters->of.kernel);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cuGraphAddEmptyNode(node, graph, dependencies, count);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return cuGraphAddMemAllocNode(node, graph, dependencies, count, &parameters->of.allocate);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return cuGraphAddMemFreeNode(node, graph, dependencies, count, parameters->of.free);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return graph_add_conditional(node, graph, dependencies, count, &parameters->of.conditional);
    case -1:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_NOT_SUPPORTED; /* here */
    }
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const void *edges, size_t count, CUgraphNodeParams *parameters) {
    (void)edges;
    return cuGraphAddNode(node, graph, dependencies, count, parameters);
}
