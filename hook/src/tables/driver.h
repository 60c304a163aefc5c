/* SPDX-License-Identifier: Apache-2.0
 *
 * The few types and constants of the CUDA driver's binary interface that the hook needs, so that it builds
 * without cuda.h, and the table of the real driver's functions. The driver is never linked: it is opened when
 * the first CUDA call comes.
 */
#ifndef CONVGPU_DRIVER_H
#define CONVGPU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult; /* an enum in cuda.h: the same width and calling convention */
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct {
    char bytes[16];
} CUuuid;

/* CUmemLocation; `ordinal` is that of a device only for the types that say so. */
struct memory_location {
    int type, ordinal;
};
enum {
    LOCATION_NONE = 0,
    LOCATION_DEVICE = 1,
    LOCATION_PART_OF_DEVICE = 6, /* the ordinal is in the lowest byte */
};

/* CUmemPoolProps, as far as it is read. */
struct pool_properties {
    int type, handle_types;
    struct memory_location location;
};

typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

/* CUDA_MEM_ALLOC_NODE_PARAMS. */
struct allocation_node {
    struct pool_properties pool;
    char pool_rest[72];
    const void *access;
    size_t access_count, size;
    CUdeviceptr address;
};
_Static_assert(sizeof(struct allocation_node) == 120, "as in cuda.h");

/* CUDA_KERNEL_NODE_PARAMS; the last two are not in its first form (CUDA 10). */
struct kernel_node {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    void *kernel; /* if there is no function */
    CUcontext context;
};
_Static_assert(sizeof(struct kernel_node) == 72, "as in cuda.h");

/* CUDA_CONDITIONAL_NODE_PARAMS. */
struct conditional_node {
    uint64_t handle;
    int type;
    unsigned count;        /* of the bodies */
    const CUgraph *bodies; /* written by the driver; they live as long as the node */
    CUcontext context;
};
_Static_assert(sizeof(struct conditional_node) == 32, "as in cuda.h");

/* CUgraphNodeParams, as far as it is read. */
struct node_parameters {
    int type, reserved[3];
    union {
        struct kernel_node kernel;
        struct conditional_node conditional;
        CUgraph child; /* the graph stands first */
    };
};
enum { NODE_KERNEL = 0, NODE_CHILD = 4, NODE_CONDITIONAL = 13 };

/* CUDA_LAUNCH_PARAMS. */
struct device_launch {
    void *function;
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void **parameters;
};
_Static_assert(sizeof(struct device_launch) == 56, "as in cuda.h");

/* CUmemAllocationProp, as far as it is read. */
struct memory_properties {
    int type, handle_types;
    struct memory_location location;
};

/* CUmemAccessDesc. */
struct memory_access {
    struct memory_location location;
    int flags;
};

/* CUDA_ARRAY3D_DESCRIPTOR and CUDA_ARRAY_DESCRIPTOR, and their forms of CUDA 2. */
struct array_descriptor {
    size_t width, height, depth;
    unsigned format, channels, flags;
};
struct flat_descriptor {
    size_t width, height;
    unsigned format, channels;
};
struct array_descriptor_v1 {
    unsigned width, height, depth, format, channels, flags;
};
struct flat_descriptor_v1 {
    unsigned width, height, format, channels;
};

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
};

enum { CU_STREAM_LEGACY = 1, CU_STREAM_PER_THREAD = 2 };
enum {
    CU_LIMIT_STACK_SIZE = 0,
    CU_LIMIT_PRINTF_FIFO_SIZE = 1,
    CU_LIMIT_MALLOC_HEAP_SIZE = 2,
    CU_LIMIT_PENDING_LAUNCHES = 4,   /* of kernels by kernels; the last of the first that take memory */
    CU_LIMIT_CIG_SHMEM_FALLBACK = 9, /* the last of those that do not; the next ones may */
};
enum { MEMPOOL_RESERVED = 5, MEMPOOL_USED = 7, MEMPOOL_LOCATION_ID = 11, MEMPOOL_LOCATION_TYPE = 12 };
enum { CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2 };

#include "tables/gated_calls.h"
#include "tables/hooked_calls.h"
#include "tables/stream_calls.h"

#define CONVGPU_DRIVER_FILE "libcuda.so.1"

/* Calls of the driver that the hook uses itself and does not hook: X(symbol, parameters). */
#define CONVGPU_DRIVER_CALLS(X)                                                                              \
    X(cuCtxGetCurrent, (CUcontext * context))                                                                \
    X(cuCtxGetDevice, (CUdevice * device))                                                                   \
    X(cuCtxGetLimit, (size_t *size, int limit))                                                              \
    X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                                    \
    X(cuCtxPushCurrent_v2, (CUcontext context))                                                              \
    X(cuCtxPopCurrent_v2, (CUcontext * context))                                                             \
    X(cuDeviceGetCount, (int *count))                                                                        \
    X(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device))                                     \
    X(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device))                                            \
    X(cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, void *value))                           \
    X(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph * graph))                                    \
    X(cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, size_t *count))                                  \
    X(cuGraphGetEdges, (CUgraph graph, CUgraphNode * from, CUgraphNode * to, size_t *count))                 \
    X(cuGraphGetEdges_v2, (CUgraph graph, CUgraphNode * from, CUgraphNode * to, void *data, size_t *count))  \
    X(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, struct kernel_node * parameters))                    \
    X(cuGraphMemAllocNodeGetParams, (CUgraphNode node, struct allocation_node * parameters))                 \
    X(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr * address))                                \
    X(cuFuncGetParamInfo, (void *function, size_t index, size_t *offset, size_t *size))                      \
    X(cuKernelGetParamInfo, (void *kernel, size_t index, size_t *offset, size_t *size))                      \
    X(cuFuncGetAttribute, (int *value, int attribute, void *function))                                       \
    X(cuKernelGetAttribute, (int *value, int attribute, void *kernel, CUdevice device))                      \
    X(cuLibraryGetKernelCount, (unsigned *count, void *library))                                             \
    X(cuModuleGetLoadingMode, (int *mode))                                                                   \
    X(cuModuleGetFunctionCount, (unsigned *count, void *module))                                             \
    X(cuGraphNodeGetType, (CUgraphNode node, int *type))                                                     \
    X(cuMemAddressReserve,                                                                                   \
      (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags))    \
    X(cuMemAddressFree, (CUdeviceptr address, size_t size))                                                  \
    X(cuMemSetAccess, (CUdeviceptr address, size_t size, const struct memory_access *access, size_t count))  \
    X(cuMemGetAllocationPropertiesFromHandle, (struct memory_properties * properties, uint64_t handle))      \
    X(cuMemPoolGetAttribute, (CUmemoryPool pool, int attribute, void *value))                                \
    X(cuStreamGetCtx, (CUstream stream, CUcontext * context))                                                \
    X(cuStreamGetDevice, (CUstream stream, CUdevice * device))                                               \
    X(cuStreamIsCapturing, (CUstream stream, int *capturing))                                                \
    X(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device))                                                     \
    X(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                                  \
    X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))

#define CONVGPU_DECLARE_HOOKED(symbol, base, since, stream, gate, parameters, arguments)                     \
    CUresult(*symbol) parameters;
#define CONVGPU_DECLARE_DRIVER(symbol, parameters) CUresult(*symbol) parameters;
#define CONVGPU_DECLARE_GATED(symbol, base, since, stream, words, on)                                        \
    CUresult (*symbol)(CONVGPU_PARAMETERS_##words);
struct driver {
    CONVGPU_HOOKED_CALLS(CONVGPU_DECLARE_HOOKED)
    CONVGPU_GATED_CALLS(CONVGPU_DECLARE_GATED)
    CONVGPU_DRIVER_CALLS(CONVGPU_DECLARE_DRIVER)
    struct {
        CONVGPU_STREAM_CALLS(CONVGPU_DECLARE_GATED)
    } passed; /* as they came: the hook uses some of them itself, with their types */
};
extern struct driver driver; /* a member is NULL when the driver lacks it, or, for a call of gated_calls.h or
                                stream_calls.h, returns CUDA_ERROR_NOT_FOUND; read only after driver_load() */

/* Opens the driver once, and fills the table. False when there is none, or when its own constructors ask.
 * Takes no lock of ours (the linker may hold its own). */
bool driver_load(void);

/* True while this thread is in the real driver: what the driver then calls itself is not hooked.
 * Initial-exec, so that reading it neither allocates nor calls. */
extern _Thread_local int inside_driver __attribute__((tls_model("initial-exec")));

/* Calls the real driver; CUDA_ERROR_NOT_FOUND when it lacks the call. */
#define DRIVER(symbol, ...)                                                                                  \
    __extension__({                                                                                          \
        inside_driver++;                                                                                     \
        CUresult driver_result = driver.symbol ? driver.symbol(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND;          \
        inside_driver--;                                                                                     \
        driver_result;                                                                                       \
    })

/* What stands behind each exported symbol, past the entry gate (interpose/resolve.c): the file of its family
 * of calls, or resolve.c. */
#define CONVGPU_DECLARE_HOOK(symbol, base, since, stream, gate, parameters, arguments)                       \
    CUresult hooked_##symbol parameters;
CONVGPU_HOOKED_CALLS(CONVGPU_DECLARE_HOOK)

#endif
