/* SPDX-License-Identifier: Apache-2.0
 *
 * THE list of hooked CUDA calls. Exported symbols with their entry gate, the version script, the table of
 * real functions, dlsym's and cuGetProcAddress's replacements are all made from it.
 *
 * X(symbol, base, since, stream, gate, parameters, arguments)
 *   symbol   the name that libcuda.so.1 exports
 *   base     the name that cuGetProcAddress is asked for
 *   since    the CUDA version from which cuGetProcAddress gives this symbol for that base: the number of its
 *            PFN_<base>_v<since> in cudaTypedefs.h; 0 when it is never given
 *   stream   NONE, or PTSZ for the per-thread-default-stream twin of a call that takes a stream
 *   gate     what must be before the hook is entered (interpose/resolve.c):
 *            NONE             nothing
 *            SESSION(takes)   a session with the scheduler, if `takes` holds for the arguments. If it does
 *                             not, the call takes no memory and tells of none (NULL, size 0), and goes to
 *                             the driver as it is.
 *            MEMORY(takes)    as SESSION; and while the process is suspended, the call waits
 *
 * Submissions, which wait while the process is suspended and are not hooked otherwise, stand in
 * gated_calls.h; others that are only given a stream in stream_calls.h.
 */
#ifndef CONVGPU_HOOKED_CALLS_H
#define CONVGPU_HOOKED_CALLS_H

/* Those that are given a stream, and call it `stream`; but for cuMemFreeAsync (calls/memory.c). */
#define CONVGPU_HOOKED_STREAM_CALLS(X)                                                                       \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, NONE, MEMORY(address &&size > 0),                             \
      (CUdeviceptr * address, size_t size, CUstream stream), (address, size, stream))                        \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, PTSZ, MEMORY(address &&size > 0),                        \
      (CUdeviceptr * address, size_t size, CUstream stream), (address, size, stream))                        \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, NONE, MEMORY(address &&size > 0 && pool),     \
      (CUdeviceptr * address, size_t size, CUmemoryPool pool, CUstream stream),                              \
      (address, size, pool, stream))                                                                         \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, PTSZ,                                    \
      MEMORY(address &&size > 0 && pool),                                                                    \
      (CUdeviceptr * address, size_t size, CUmemoryPool pool, CUstream stream),                              \
      (address, size, pool, stream))                                                                         \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, NONE, NONE, (CUstream stream), (stream))               \
    X(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000, PTSZ, NONE, (CUstream stream), (stream))          \
    X(cuStreamBeginCapture, cuStreamBeginCapture, 10000, NONE, NONE, (CUstream stream), (stream))            \
    X(cuStreamBeginCapture_ptsz, cuStreamBeginCapture, 10000, PTSZ, NONE, (CUstream stream), (stream))       \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, NONE, NONE, (CUstream stream, int mode),         \
      (stream, mode))                                                                                        \
    X(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture, 10010, PTSZ, NONE, (CUstream stream, int mode),    \
      (stream, mode))                                                                                        \
    X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, NONE, NONE,                           \
      (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges, size_t count, int mode), \
      (stream, graph, nodes, edges, count, mode))                                                            \
    X(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, 12030, PTSZ, NONE,                      \
      (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges, size_t count, int mode), \
      (stream, graph, nodes, edges, count, mode))                                                            \
    X(cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph, 13030, NONE, NONE,                       \
      (CUstream stream, int mode, CUgraph graph, void *callback, void *argument),                            \
      (stream, mode, graph, callback, argument))                                                             \
    X(cuStreamBeginRecaptureToGraph_ptsz, cuStreamBeginRecaptureToGraph, 13030, PTSZ, NONE,                  \
      (CUstream stream, int mode, CUgraph graph, void *callback, void *argument),                            \
      (stream, mode, graph, callback, argument))                                                             \
    X(cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig, 13010, NONE, NONE,                               \
      (CUstream stream, void *parameters), (stream, parameters))                                             \
    X(cuStreamBeginCaptureToCig_ptsz, cuStreamBeginCaptureToCig, 13010, PTSZ, NONE,                          \
      (CUstream stream, void *parameters), (stream, parameters))                                             \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000, NONE, NONE, (CUstream stream, CUgraph * graph),         \
      (stream, graph))                                                                                       \
    X(cuStreamEndCapture_ptsz, cuStreamEndCapture, 10000, PTSZ, NONE, (CUstream stream, CUgraph * graph),    \
      (stream, graph))                                                                                       \
    X(cuStreamEndCaptureToCig, cuStreamEndCaptureToCig, 13010, NONE, NONE, (CUstream stream), (stream))      \
    X(cuStreamEndCaptureToCig_ptsz, cuStreamEndCaptureToCig, 13010, PTSZ, NONE, (CUstream stream), (stream)) \
    X(cuStreamDestroy, cuStreamDestroy, 2000, NONE, NONE, (CUstream stream), (stream))                       \
    X(cuStreamDestroy_v2, cuStreamDestroy, 4000, NONE, NONE, (CUstream stream), (stream))

/* Those that may be given one in their parameters. */
#define CONVGPU_HOOKED_UPLOAD_CALLS(X)                                                                       \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, NONE, MEMORY(exec &&graph),         \
      (CUgraphExec * exec, CUgraph graph, void *parameters), (exec, graph, parameters))                      \
    X(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000, PTSZ, MEMORY(exec &&graph),    \
      (CUgraphExec * exec, CUgraph graph, void *parameters), (exec, graph, parameters))

#define CONVGPU_HOOKED_OTHER_CALLS(X)                                                                        \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, NONE, NONE, (CUdeviceptr address, CUstream stream),             \
      (address, stream))                                                                                     \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, PTSZ, NONE, (CUdeviceptr address, CUstream stream),        \
      (address, stream))                                                                                     \
    X(cuInit, cuInit, 2000, NONE, SESSION(true), (unsigned flags), (flags))                                  \
    X(cuMemAlloc, cuMemAlloc, 2000, NONE, MEMORY(address &&size > 0), (uint32_t *address, unsigned size),    \
      (address, size))                                                                                       \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, NONE, MEMORY(address &&size > 0),                                     \
      (CUdeviceptr * address, size_t size), (address, size))                                                 \
    X(cuMemAllocPitch, cuMemAllocPitch, 2000, NONE, MEMORY(address && pitch && width > 0 && height > 0),     \
      (uint32_t *address, unsigned *pitch, unsigned width, unsigned height, unsigned element),               \
      (address, pitch, width, height, element))                                                              \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, NONE, MEMORY(address && pitch && width > 0 && height > 0),  \
      (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned element),                 \
      (address, pitch, width, height, element))                                                              \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, NONE, MEMORY(address &&size > 0),                          \
      (CUdeviceptr * address, size_t size, unsigned flags), (address, size, flags))                          \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020, NONE, MEMORY(address &&size > 0),                                \
      (void **address, size_t size, unsigned flags), (address, size, flags))                                 \
    X(cuMemAllocHost, cuMemAllocHost, 2000, NONE, MEMORY(address &&size > 0),                                \
      (void **address, unsigned size), (address, size))                                                      \
    X(cuMemAllocHost_v2, cuMemAllocHost, 3020, NONE, MEMORY(address &&size > 0),                             \
      (void **address, size_t size), (address, size))                                                        \
    X(cuMemHostRegister, cuMemHostRegister, 4000, NONE, MEMORY(address &&size > 0),                          \
      (void *address, size_t size, unsigned flags), (address, size, flags))                                  \
    X(cuMemHostRegister_v2, cuMemHostRegister, 6050, NONE, MEMORY(address &&size > 0),                       \
      (void *address, size_t size, unsigned flags), (address, size, flags))                                  \
    X(cuMemFreeHost, cuMemFreeHost, 2000, NONE, NONE, (void *address), (address))                            \
    X(cuMemHostUnregister, cuMemHostUnregister, 4000, NONE, NONE, (void *address), (address))                \
    X(cuMemFree, cuMemFree, 2000, NONE, NONE, (uint32_t address), (address))                                 \
    X(cuMemFree_v2, cuMemFree, 3020, NONE, NONE, (CUdeviceptr address), (address))                           \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, NONE, MEMORY(pool &&properties),                              \
      (CUmemoryPool * pool, const struct pool_properties *properties), (pool, properties))                   \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, NONE, NONE, (CUmemoryPool pool), (pool))                    \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, NONE, NONE, (CUmemoryPool pool, size_t keep), (pool, keep))   \
    X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020, NONE, NONE,                 \
      (void *shareable, CUmemoryPool pool, int type, unsigned long long flags),                              \
      (shareable, pool, type, flags))                                                                        \
    X(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, NONE, NONE, (void *data, CUdeviceptr address),  \
      (data, address))                                                                                       \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, NONE, NONE,                                       \
      (CUmemoryPool pool, int attribute, void *value), (pool, attribute, value))                             \
    X(cuMemCreate, cuMemCreate, 10020, NONE, MEMORY(handle &&size > 0 && properties),                        \
      (uint64_t *handle, size_t size, const struct memory_properties *properties, unsigned long long flags), \
      (handle, size, properties, flags))                                                                     \
    X(cuMemRelease, cuMemRelease, 10020, NONE, NONE, (uint64_t handle), (handle))                            \
    X(cuMemMap, cuMemMap, 10020, NONE, NONE,                                                                 \
      (CUdeviceptr address, size_t size, size_t offset, uint64_t handle, unsigned long long flags),          \
      (address, size, offset, handle, flags))                                                                \
    X(cuMemUnmap, cuMemUnmap, 10020, NONE, NONE, (CUdeviceptr address, size_t size), (address, size))        \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, NONE, NONE,                           \
      (uint64_t *handle, void *address), (handle, address))                                                  \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, NONE, NONE,                         \
      (void *shareable, uint64_t handle, int type, unsigned long long flags),                                \
      (shareable, handle, type, flags))                                                                      \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, NONE, NONE,                     \
      (uint64_t *handle, void *shareable, int type), (handle, shareable, type))                              \
    X(cuArrayCreate, cuArrayCreate, 2000, NONE, MEMORY(array &&descriptor),                                  \
      (void **array, const struct flat_descriptor_v1 *descriptor), (array, descriptor))                      \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, NONE, MEMORY(array &&descriptor),                               \
      (void **array, const struct flat_descriptor *descriptor), (array, descriptor))                         \
    X(cuArray3DCreate, cuArray3DCreate, 2000, NONE, MEMORY(array &&descriptor),                              \
      (void **array, const struct array_descriptor_v1 *descriptor), (array, descriptor))                     \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, NONE, MEMORY(array &&descriptor),                           \
      (void **array, const struct array_descriptor *descriptor), (array, descriptor))                        \
    X(cuArrayDestroy, cuArrayDestroy, 2000, NONE, NONE, (void *array), (array))                              \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, NONE, MEMORY(array &&descriptor),                \
      (void **array, const struct array_descriptor *descriptor, unsigned levels),                            \
      (array, descriptor, levels))                                                                           \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, NONE, NONE, (void *array), (array))            \
    X(cuGraphInstantiate, cuGraphInstantiate, 10000, NONE, MEMORY(exec &&graph),                             \
      (CUgraphExec * exec, CUgraph graph, void *error_node, char *text, size_t size),                        \
      (exec, graph, error_node, text, size))                                                                 \
    X(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, NONE, MEMORY(exec &&graph),                          \
      (CUgraphExec * exec, CUgraph graph, void *error_node, char *text, size_t size),                        \
      (exec, graph, error_node, text, size))                                                                 \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, NONE, MEMORY(exec &&graph),           \
      (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))                   \
    X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, NONE, NONE, (CUgraphExec exec), (exec))                 \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, NONE, NONE, (CUdevice device), (device))            \
    X(cuMemGetInfo, cuMemGetInfo, 2000, NONE, SESSION(unused || total), (unsigned *unused, unsigned *total), \
      (unused, total))                                                                                       \
    X(cuMemGetInfo_v2, cuMemGetInfo, 3020, NONE, SESSION(unused || total), (size_t *unused, size_t *total),  \
      (unused, total))                                                                                       \
    X(cuDeviceTotalMem, cuDeviceTotalMem, 2000, NONE, SESSION(total), (unsigned *total, CUdevice device),    \
      (total, device))                                                                                       \
    X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, NONE, SESSION(total), (size_t *total, CUdevice device),   \
      (total, device))                                                                                       \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, NONE, MEMORY(context),                       \
      (CUcontext * context, CUdevice device), (context, device))                                             \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, NONE, NONE, (CUdevice device), (device))   \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, NONE, NONE, (CUdevice device),         \
      (device))                                                                                              \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, NONE, NONE, (CUdevice device), (device))       \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, NONE, NONE, (CUdevice device), (device))   \
    X(cuCtxCreate, cuCtxCreate, 2000, NONE, MEMORY(context),                                                 \
      (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device))                      \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, NONE, MEMORY(context),                                              \
      (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device))                      \
    X(cuCtxCreate_v3, cuCtxCreate, 11040, NONE, MEMORY(context),                                             \
      (CUcontext * context, void *affinity, int count, unsigned flags, CUdevice device),                     \
      (context, affinity, count, flags, device))                                                             \
    X(cuCtxCreate_v4, cuCtxCreate, 12050, NONE, MEMORY(context),                                             \
      (CUcontext * context, void *parameters, unsigned flags, CUdevice device),                              \
      (context, parameters, flags, device))                                                                  \
    X(cuGLCtxCreate, cuGLCtxCreate, 2000, NONE, MEMORY(context),                                             \
      (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device))                      \
    X(cuGLCtxCreate_v2, cuGLCtxCreate, 3020, NONE, MEMORY(context),                                          \
      (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device))                      \
    X(cuVDPAUCtxCreate, cuVDPAUCtxCreate, 3010, NONE, MEMORY(context),                                       \
      (CUcontext * context, unsigned flags, CUdevice device, uint32_t shown, void *lookup),                  \
      (context, flags, device, shown, lookup))                                                               \
    X(cuVDPAUCtxCreate_v2, cuVDPAUCtxCreate, 3020, NONE, MEMORY(context),                                    \
      (CUcontext * context, unsigned flags, CUdevice device, uint32_t shown, void *lookup),                  \
      (context, flags, device, shown, lookup))                                                               \
    X(cuCtxDestroy, cuCtxDestroy, 2000, NONE, NONE, (CUcontext context), (context))                          \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, NONE, NONE, (CUcontext context), (context))                       \
    X(cuCtxAttach, cuCtxAttach, 2000, NONE, NONE, (CUcontext * context, unsigned flags), (context, flags))   \
    X(cuCtxDetach, cuCtxDetach, 2000, NONE, NONE, (CUcontext context), (context))                            \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, NONE, MEMORY(green),                                        \
      (CUgreenCtx * green, void *description, CUdevice device, unsigned flags),                              \
      (green, description, device, flags))                                                                   \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, NONE, NONE, (CUgreenCtx green), (green))                  \
    X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, NONE, NONE, (CUcontext * context, CUgreenCtx green),      \
      (context, green))                                                                                      \
    X(cuStreamCreate, cuStreamCreate, 2000, NONE, MEMORY(stream), (CUstream * stream, unsigned flags),       \
      (stream, flags))                                                                                       \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, NONE, MEMORY(stream),                    \
      (CUstream * stream, unsigned flags, int priority), (stream, flags, priority))                          \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, NONE, MEMORY(stream),                           \
      (CUstream * stream, CUgreenCtx green, unsigned flags, int priority), (stream, green, flags, priority)) \
    X(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010, NONE,                   \
      MEMORY(exec &&child), (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child))        \
    X(cuGraphExecUpdate, cuGraphExecUpdate, 10020, NONE, MEMORY(exec &&graph),                               \
      (CUgraphExec exec, CUgraph graph, void *node, void *info), (exec, graph, node, info))                  \
    X(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, NONE, MEMORY(exec &&graph),                            \
      (CUgraphExec exec, CUgraph graph, void *info), (exec, graph, info))                                    \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, NONE, NONE, (void), ())                                      \
    X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, NONE, NONE, (CUcontext context), (context))              \
    X(cuModuleLoad, cuModuleLoad, 2000, NONE, MEMORY(module), (void **module, const char *file),             \
      (module, file))                                                                                        \
    X(cuModuleLoadData, cuModuleLoadData, 2000, NONE, MEMORY(module), (void **module, const void *image),    \
      (module, image))                                                                                       \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, NONE, MEMORY(module),                                    \
      (void **module, const void *image, unsigned count, void *options, void **values),                      \
      (module, image, count, options, values))                                                               \
    X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, NONE, MEMORY(module),                              \
      (void **module, const void *image), (module, image))                                                   \
    X(cuModuleUnload, cuModuleUnload, 2000, NONE, NONE, (void *module), (module))                            \
    X(cuLibraryLoadData, cuLibraryLoadData, 12000, NONE, MEMORY(library),                                    \
      (void **library, const void *image, void *options, void **values, unsigned count,                      \
       void *library_options, void **library_values, unsigned library_count),                                \
      (library, image, options, values, count, library_options, library_values, library_count))              \
    X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, NONE, MEMORY(library),                            \
      (void **library, const char *file, void *options, void **values, unsigned count,                       \
       void *library_options, void **library_values, unsigned library_count),                                \
      (library, file, options, values, count, library_options, library_values, library_count))               \
    X(cuLibraryUnload, cuLibraryUnload, 12000, NONE, NONE, (void *library), (library))                       \
    X(cuKernelGetFunction, cuKernelGetFunction, 12000, NONE, NONE, (void **function, void *kernel),          \
      (function, kernel))                                                                                    \
    X(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000, NONE, NONE,                                             \
      (CUdeviceptr * address, size_t *size, void *library, const char *name),                                \
      (address, size, library, name))                                                                        \
    X(cuCtxSetLimit, cuCtxSetLimit, 3010, NONE,                                                              \
      MEMORY(limit <= CU_LIMIT_PENDING_LAUNCHES || limit > CU_LIMIT_CIG_SHMEM_FALLBACK),                     \
      (int limit, size_t size), (limit, size))                                                               \
    X(cuFuncLoad, cuFuncLoad, 12040, NONE, NONE, (void *function), (function))                               \
    X(cuModuleGetFunction, cuModuleGetFunction, 2000, NONE, NONE,                                            \
      (void **function, void *module, const char *name), (function, module, name))                           \
    X(cuFuncGetModule, cuFuncGetModule, 11000, NONE, NONE, (void **module, void *function),                  \
      (module, function))                                                                                    \
    X(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, 12040, NONE, NONE,                             \
      (void **functions, unsigned count, void *module), (functions, count, module))                          \
    X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, NONE, NONE,                                             \
      (void **kernel, void *library, const char *name), (kernel, library, name))                             \
    X(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040, NONE, NONE,                               \
      (void **kernels, unsigned count, void *library), (kernels, count, library))                            \
    X(cuLibraryGetModule, cuLibraryGetModule, 12000, NONE, NONE, (void **module, void *library),             \
      (module, library))                                                                                     \
    X(cuLibraryGetManaged, cuLibraryGetManaged, 12000, NONE, NONE,                                           \
      (CUdeviceptr * address, size_t *size, void *library, const char *name),                                \
      (address, size, library, name))                                                                        \
    X(cuGraphAddKernelNode, cuGraphAddKernelNode, 10000, NONE, NONE,                                         \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *nodes, size_t count,                            \
       const struct kernel_node *parameters),                                                                \
      (node, graph, nodes, count, parameters))                                                               \
    X(cuGraphAddKernelNode_v2, cuGraphAddKernelNode, 12000, NONE, NONE,                                      \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *nodes, size_t count,                            \
       const struct kernel_node *parameters),                                                                \
      (node, graph, nodes, count, parameters))                                                               \
    X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams, 10000, NONE, NONE,                             \
      (CUgraphNode node, const struct kernel_node *parameters), (node, parameters))                          \
    X(cuGraphKernelNodeSetParams_v2, cuGraphKernelNodeSetParams, 12000, NONE, NONE,                          \
      (CUgraphNode node, const struct kernel_node *parameters), (node, parameters))                          \
    X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 10010, NONE, NONE,                     \
      (CUgraphExec exec, CUgraphNode node, const struct kernel_node *parameters), (exec, node, parameters))  \
    X(cuGraphExecKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams, 12000, NONE, NONE,                  \
      (CUgraphExec exec, CUgraphNode node, const struct kernel_node *parameters), (exec, node, parameters))  \
    X(cuGraphAddNode, cuGraphAddNode, 12020, NONE, NONE,                                                     \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *nodes, size_t count,                            \
       struct node_parameters *parameters),                                                                  \
      (node, graph, nodes, count, parameters))                                                               \
    X(cuGraphAddNode_v2, cuGraphAddNode, 12030, NONE, NONE,                                                  \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *nodes, const void *edges, size_t count,         \
       struct node_parameters *parameters),                                                                  \
      (node, graph, nodes, edges, count, parameters))                                                        \
    X(cuGraphAddNode_v3, cuGraphAddNode, 13040, NONE, NONE,                                                  \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *nodes, const void *edges, size_t count,         \
       struct node_parameters *parameters),                                                                  \
      (node, graph, nodes, edges, count, parameters))                                                        \
    X(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020, NONE, NONE,                                         \
      (CUgraphNode node, struct node_parameters * parameters), (node, parameters))                           \
    X(cuGraphNodeSetParams_v2, cuGraphNodeSetParams, 13040, NONE, NONE,                                      \
      (CUgraphNode node, struct node_parameters * parameters), (node, parameters))                           \
    X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, NONE, NONE,                                 \
      (CUgraphExec exec, CUgraphNode node, struct node_parameters * parameters), (exec, node, parameters))   \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, NONE, NONE,                                        \
      (void *data, int attribute, CUdeviceptr address), (data, attribute, address))                          \
    X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, NONE, NONE,                                      \
      (unsigned count, int *attributes, void **data, CUdeviceptr address),                                   \
      (count, attributes, data, address))                                                                    \
    X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, NONE, NONE,                                        \
      (const void *value, int attribute, CUdeviceptr address), (value, attribute, address))                  \
    X(cuMemGetAddressRange, cuMemGetAddressRange, 2000, NONE, NONE,                                          \
      (uint32_t *base, unsigned *size, uint32_t address), (base, size, address))                             \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, NONE, NONE,                                       \
      (CUdeviceptr * base, size_t *size, CUdeviceptr address), (base, size, address))                        \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, NONE, NONE, (void *handle, CUdeviceptr address),           \
      (handle, address))                                                                                     \
    X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, NONE, NONE,                       \
      (void *handle, CUdeviceptr address, size_t size, int type, unsigned long long flags),                  \
      (handle, address, size, type, flags))                                                                  \
    X(cuMulticastBindAddr, cuMulticastBindAddr, 12010, NONE, NONE,                                           \
      (uint64_t object, size_t offset, CUdeviceptr address, size_t size, unsigned long long flags),          \
      (object, offset, address, size, flags))                                                                \
    X(cuMulticastBindAddr_v2, cuMulticastBindAddr, 13010, NONE, NONE,                                        \
      (uint64_t object, CUdevice device, size_t offset, CUdeviceptr address, size_t size,                    \
       unsigned long long flags),                                                                            \
      (object, device, offset, address, size, flags))                                                        \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, NONE, NONE, (CUcontext context, unsigned flags),   \
      (context, flags))                                                                                      \
    X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, NONE, NONE, (CUcontext context), (context))      \
    X(cuEventSynchronize, cuEventSynchronize, 2000, NONE, NONE, (void *event), (event))                      \
    X(cuGetProcAddress, cuGetProcAddress, 11030, NONE, NONE,                                                 \
      (const char *name, void **function, int version, uint64_t flags), (name, function, version, flags))    \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, NONE, NONE,                                              \
      (const char *name, void **function, int version, uint64_t flags, int *status),                         \
      (name, function, version, flags, status))

#define CONVGPU_HOOKED_CALLS(X)                                                                              \
    CONVGPU_HOOKED_STREAM_CALLS(X)                                                                           \
    CONVGPU_HOOKED_UPLOAD_CALLS(X)                                                                           \
    CONVGPU_HOOKED_OTHER_CALLS(X)

enum convgpu_stream { CONVGPU_STREAM_NONE, CONVGPU_STREAM_PTSZ };

#endif
