/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs of the CUDA driver's binary interface, as far as they allocate memory, and stream capture.
 */
#ifndef SIMULATED_GRAPH_API_H
#define SIMULATED_GRAPH_API_H

#include "libcuda/context/stream_api.h"

typedef struct graph *CUgraph;
typedef struct node *CUgraphNode;
typedef struct graph_exec *CUgraphExec;

enum {
    CU_GRAPH_NODE_TYPE_KERNEL = 0,
    CU_GRAPH_NODE_TYPE_MEMCPY = 1,
    CU_GRAPH_NODE_TYPE_MEMSET = 2,
    CU_GRAPH_NODE_TYPE_HOST = 3,
    CU_GRAPH_NODE_TYPE_GRAPH = 4,
    CU_GRAPH_NODE_TYPE_EMPTY = 5,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
    CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
    CU_GRAPH_NODE_TYPE_CONDITIONAL = 13,
};
enum { CU_GRAPH_COND_TYPE_IF = 0, CU_GRAPH_COND_TYPE_WHILE = 1, CU_GRAPH_COND_TYPE_SWITCH = 2 };
enum { CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2 };
enum {
    CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
    CU_GRAPH_MEM_ATTR_USED_MEM_HIGH = 1,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH = 3,
};
enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
};

typedef struct {
    CUmemPoolProps pool;
    const CUmemAccessDesc *access;
    size_t access_count;
    size_t size;
    CUdeviceptr address; /* out */
} CUDA_MEM_ALLOC_NODE_PARAMS;
_Static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120, "as in cuda.h");

typedef struct {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    CUfunction kernel; /* if there is no function; not in the first form, nor is what follows */
    CUcontext context;
} CUDA_KERNEL_NODE_PARAMS;
_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == 72, "as in cuda.h");

typedef struct {
    uint64_t handle;
    int type; /* CU_GRAPH_COND_TYPE_* */
    unsigned count;
    const CUgraph *bodies; /* out; the node's */
    CUcontext context;
} CUDA_CONDITIONAL_NODE_PARAMS;
_Static_assert(sizeof(CUDA_CONDITIONAL_NODE_PARAMS) == 32, "as in cuda.h");

typedef struct {
    int type;
    int reserved[3];
    union {
        CUDA_KERNEL_NODE_PARAMS kernel;
        CUDA_MEM_ALLOC_NODE_PARAMS allocate;
        CUDA_CONDITIONAL_NODE_PARAMS conditional;
        CUdeviceptr free;
        long long padding[29];
    } of;
    long long reserved_end;
} CUgraphNodeParams;
_Static_assert(sizeof(CUgraphNodeParams) == 256, "as in cuda.h");

typedef struct {
    uint64_t flags;
    CUstream upload_stream;
    CUgraphNode error_node;
    int result;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

CUDA_EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUDA_EXPORT CUresult cuGraphDestroy(CUgraph graph);
CUDA_EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                         size_t count);
CUDA_EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
                                              const CUgraphNode *dependencies, size_t count, CUgraph child);
CUDA_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph);
CUDA_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                          size_t count, const CUDA_KERNEL_NODE_PARAMS *parameters);
CUDA_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                             const CUgraphNode *dependencies, size_t count,
                                             const CUDA_KERNEL_NODE_PARAMS *parameters);
CUDA_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                            size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *parameters);
CUDA_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                           size_t count, CUdeviceptr address);
CUDA_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters);
CUDA_EXPORT CUresult cuGraphConditionalHandleCreate(uint64_t *handle, CUgraph graph, CUcontext context,
                                                    unsigned value, unsigned flags);
CUDA_EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address);
CUDA_EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                    size_t count, CUgraphNodeParams *parameters);
CUDA_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                       const void *edges, size_t count, CUgraphNodeParams *parameters);

CUDA_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUDA_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type);
CUDA_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *parameters);
CUDA_EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
CUDA_EXPORT CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, void *data,
                                        size_t *count);

CUDA_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                                        size_t log_size);
CUDA_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                           char *log, size_t log_size);
CUDA_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUDA_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters);
CUDA_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                       CUDA_GRAPH_INSTANTIATE_PARAMS *parameters);
CUDA_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream);
CUDA_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream);
CUDA_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUDA_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream);
CUDA_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, void *node, void *info);
CUDA_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *info);
CUDA_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                       const CUDA_KERNEL_NODE_PARAMS *parameters);
CUDA_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child);
CUDA_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec);

CUDA_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value);
CUDA_EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void *value);
CUDA_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device);

CUDA_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUDA_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode);
CUDA_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUDA_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);
CUDA_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUDA_EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status);
CUDA_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode);

#endif
