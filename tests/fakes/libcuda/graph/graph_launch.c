/* SPDX-License-Identifier: Apache-2.0
 *
 * Executable graphs. Instantiation takes what their work needs (graph_work.c); the memory that they allocate,
 * the first launch (or upload) in a stream.
 */
#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"
#include "libcuda/module/module.h"
#include "libcuda/work/work.h"

#define KNOWN_FLAGS 15u

struct graph_exec {
    struct handle handle;
    struct graph *graph;
    unsigned count; /* nodes that the graph had when it was instantiated */
    struct context *context;
    uint64_t work; /* bytes of the context's device (graph_work.c) */
    bool frees;    /* CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH */
};

static bool has_memory_nodes(const struct graph *graph) {
    const struct node *node = graph->nodes;
    while (node != NULL && node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
           node->type != CU_GRAPH_NODE_TYPE_MEM_FREE) {
        node = node->next;
    }
    return node != NULL;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *handle, CUgraph graph_handle, unsigned long long flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct graph *graph = handle_find(HANDLE_GRAPH, graph_handle);
    bool valid = handle != NULL && graph != NULL && flags <= KNOWN_FLAGS;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (graph->instances > 0 && has_memory_nodes(graph)) return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    struct graph_exec *exec = handle_new(HANDLE_GRAPH_EXEC, sizeof *exec);
    if (exec == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    exec->context = context_current();
    if (exec->context != NULL && !graph_work_begin(graph, exec->context, &exec->work)) {
        handle_delete(exec);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    exec->graph = graph;
    exec->count = graph->count;
    exec->frees = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    graph->instances++;
    graph->references++;
    *handle = exec;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_size) {
    (void)error_node, (void)log, (void)log_size;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_size) {
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_size);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    if (parameters == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphInstantiateWithFlags(exec, graph, parameters->flags);
    parameters->error_node = NULL;
    parameters->result = result != CUDA_SUCCESS;
    if (result != CUDA_SUCCESS || !(parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)) return result;
    return cuGraphUpload(*exec, parameters->upload_stream);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    return cuGraphInstantiateWithParams(exec, graph, parameters);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct graph_exec *exec = handle_find(HANDLE_GRAPH_EXEC, handle);
    if (exec == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (exec->context != NULL) graph_work_end(exec->context, exec->work);
    exec->graph->instances--;
    graph_unreference(exec->graph);
    handle_delete(exec);
    return driver_leave(CUDA_SUCCESS);
}

/* Only what its kernels take changes here; it has to have as many nodes. */
CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle, void *info) {
    (void)info;
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct graph_exec *exec = handle_find(HANDLE_GRAPH_EXEC, handle);
    struct graph *graph = handle_find(HANDLE_GRAPH, graph_handle);
    if (exec == NULL || graph == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (graph->count != exec->count) return driver_leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    if (exec->context != NULL) result = graph_work_update(graph, exec->context, &exec->work);
    return driver_leave(result);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, void *node, void *info) {
    (void)node;
    return cuGraphExecUpdate_v2(exec, graph, info);
}

/* Only what it takes changes here. */
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node_handle,
                                           const CUDA_KERNEL_NODE_PARAMS *parameters) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct graph_exec *exec = handle_find(HANDLE_GRAPH_EXEC, handle);
    struct node *node = handle_find(HANDLE_NODE, node_handle);
    bool valid = exec != NULL && node != NULL && node->graph == exec->graph && parameters != NULL &&
                 parameters->function != NULL;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (exec->context != NULL)
        result = graph_work_change(node, parameters->function->module, exec->context, &exec->work);
    return driver_leave(result);
}

/* What it takes is that of a change to larger parameters, each time. */
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node_handle,
                                            CUgraph child_handle) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct graph_exec *exec = handle_find(HANDLE_GRAPH_EXEC, handle);
    const struct node *node = handle_find(HANDLE_NODE, node_handle);
    const struct graph *child = handle_find(HANDLE_GRAPH, child_handle);
    bool valid =
        exec != NULL && node != NULL && node->graph == exec->graph && node->child != NULL && child != NULL;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (struct node *each = child->nodes; result == CUDA_SUCCESS && each != NULL; each = each->next) {
        struct node fresh = {.room = 0};
        if (exec->context != NULL && each->operation.module != NULL)
            result = graph_work_change(&fresh, each->operation.module, exec->context, &exec->work);
    }
    return driver_leave(result);
}

static struct node *find_allocation(const struct graph_exec *exec, uint64_t address) {
    struct node *node = exec->graph->nodes;
    for (unsigned i = 0; i < exec->count; i++, node = node->next) {
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->address == address) return node;
    }
    return NULL;
}

/* The most bytes of the device that are allocated at a time when the nodes run in the order in which they
 * were added. */
static uint64_t peak(const struct graph_exec *exec, CUdevice device) {
    uint64_t now = 0, most = 0;
    const struct node *node = exec->graph->nodes;
    for (unsigned i = 0; i < exec->count; i++, node = node->next) {
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->device == device) {
            now += node->size;
        } else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            const struct node *allocation = find_allocation(exec, node->address);
            if (allocation != NULL && allocation->device == device) now -= allocation->size;
        }
        if (now > most) most = now;
    }
    return most;
}

/* What a launch holds of each device. */
struct holds {
    struct graph_hold *of[SIMULATED_DEVICES_MAX]; /* NULL where the graph allocates nothing */
};

static void release(const struct holds *holds) {
    for (CUdevice device = 0; device < driver.device_count; device++) {
        if (holds->of[device] != NULL) graph_release(holds->of[device]);
    }
}

static bool reserve(const struct graph_exec *exec, struct holds *holds) {
    *holds = (struct holds){0};
    for (CUdevice device = 0; device < driver.device_count; device++) {
        uint64_t size = peak(exec, device);
        if (size == 0) continue;
        holds->of[device] = graph_hold(device, size);
        if (holds->of[device] != NULL) continue;
        release(holds);
        return false;
    }
    return true;
}

/* The live allocation that a node for another graph's memory frees, or NULL. */
static struct block *foreign_block(const struct graph_exec *exec, const struct node *node) {
    if (node->type != CU_GRAPH_NODE_TYPE_MEM_FREE || find_allocation(exec, node->address) != NULL)
        return NULL;
    struct block *block = blocks_find(&driver.blocks, node->address);
    return block != NULL && block->kind == BLOCK_GRAPH ? block : NULL;
}

/* What an earlier launch left allocated is freed or in the way; what this one is to free has to be there. */
static CUresult prepare(const struct graph_exec *exec) {
    const struct node *node = exec->graph->nodes;
    for (unsigned i = 0; i < exec->count; i++, node = node->next) {
        bool foreign =
            node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && find_allocation(exec, node->address) == NULL;
        if (foreign && foreign_block(exec, node) == NULL) return CUDA_ERROR_INVALID_VALUE;
        if (node->child != NULL || node->bodies != NULL) return CUDA_ERROR_NOT_SUPPORTED; /* here */
        if (node->live != NULL && !exec->frees) return CUDA_ERROR_INVALID_VALUE;
    }
    node = exec->graph->nodes;
    for (unsigned i = 0; i < exec->count; i++, node = node->next) {
        if (node->live != NULL) graph_free(node->live);
    }
    return CUDA_SUCCESS;
}

static CUresult launch(const struct graph_exec *exec, const struct lane *lane) {
    CUresult result = prepare(exec);
    if (result != CUDA_SUCCESS) return result;
    struct holds holds;
    if (!reserve(exec, &holds)) return CUDA_ERROR_OUT_OF_MEMORY;
    struct node *node = exec->graph->nodes;
    for (unsigned i = 0; result == CUDA_SUCCESS && i < exec->count; i++, node = node->next) {
        struct block *block = foreign_block(exec, node);
        if (block != NULL) graph_free(block);
        bool stays = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !node->freed_here;
        if (stays) result = graph_start(node, holds.of[node->device]);
        if (node->operation.kind != OPERATION_NOTHING) work_add(lane, &node->operation, 0, NULL);
    }
    release(&holds); /* but for what lives in it */
    return result;
}

static CUresult enter_exec(CUgraphExec handle, CUstream stream, bool per_thread, struct lane *lane,
                           struct graph_exec **exec) {
    CUresult result = work_enter(stream, per_thread, lane);
    if (result != CUDA_SUCCESS) return result;
    *exec = handle_find(HANDLE_GRAPH_EXEC, handle);
    return *exec != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
    struct graph_exec *exec = NULL;
    struct lane lane;
    CUresult result = enter_exec(handle, stream, false, &lane, &exec);
    if (result != CUDA_SUCCESS) return result;
    struct holds holds;
    bool reserved = reserve(exec, &holds);
    if (reserved) release(&holds);
    driver_leave(CUDA_SUCCESS);
    return reserved ? CUDA_SUCCESS : refuse_memory();
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphUpload(exec, stream == NULL ? CU_STREAM_PER_THREAD : stream);
}

static CUresult launch_in(CUgraphExec handle, CUstream stream, bool per_thread) {
    struct graph_exec *exec = NULL;
    struct lane lane;
    CUresult result = enter_exec(handle, stream, per_thread, &lane, &exec);
    if (result != CUDA_SUCCESS) return result;
    result = launch(exec, &lane);
    if (result == CUDA_SUCCESS) result = lane.context->error;
    driver_leave(result);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? refuse_memory() : result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return launch_in(exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return launch_in(exec, stream, true);
}
