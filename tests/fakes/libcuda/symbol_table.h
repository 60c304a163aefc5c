/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call that cuGetProcAddress knows, with the CUDA version that brought it: the number of its
 * PFN_<base>_v<since> in cudaTypedefs.h.
 */
#ifndef SIMULATED_SYMBOL_TABLE_H
#define SIMULATED_SYMBOL_TABLE_H

#include "libcuda/context/green_api.h"
#include "libcuda/context/stream_api.h"
#include "libcuda/graph/graph_api.h"
#include "libcuda/legacy/legacy_api.h"
#include "libcuda/memory/array_api.h"
#include "libcuda/memory/virtual_api.h"
#include "libcuda/module/module_api.h"

/* X(base name, CUDA version that brought the variant, variant, whether it uses the per-thread stream). */
#define SYMBOLS(X)                                                                                           \
    X(cuInit, 2000, cuInit, false)                                                                           \
    X(cuDriverGetVersion, 2020, cuDriverGetVersion, false)                                                   \
    X(cuGetErrorName, 6000, cuGetErrorName, false)                                                           \
    X(cuGetErrorString, 6000, cuGetErrorString, false)                                                       \
    X(cuGetProcAddress, 11030, cuGetProcAddress, false)                                                      \
    X(cuGetProcAddress, 12000, cuGetProcAddress_v2, false)                                                   \
    X(cuDeviceGetCount, 2000, cuDeviceGetCount, false)                                                       \
    X(cuDeviceGet, 2000, cuDeviceGet, false)                                                                 \
    X(cuDeviceGetName, 2000, cuDeviceGetName, false)                                                         \
    X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, false)                                                         \
    X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, false)                                                     \
    X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, false)                                               \
    X(cuDeviceTotalMem, 2000, cuDeviceTotalMem, false)                                                       \
    X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, false)                                                    \
    X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, false)                                       \
    X(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease, false)                                     \
    X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, false)                                 \
    X(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset, false)                                         \
    X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2, false)                                     \
    X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState, false)                                   \
    X(cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags, false)                                   \
    X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2, false)                               \
    X(cuCtxCreate, 2000, cuCtxCreate, false)                                                                 \
    X(cuCtxCreate, 3020, cuCtxCreate_v2, false)                                                              \
    X(cuCtxCreate, 11040, cuCtxCreate_v3, false)                                                             \
    X(cuCtxCreate, 12050, cuCtxCreate_v4, false)                                                             \
    X(cuCtxDestroy, 2000, cuCtxDestroy, false)                                                               \
    X(cuCtxDestroy, 4000, cuCtxDestroy_v2, false)                                                            \
    X(cuCtxGetCurrent, 4000, cuCtxGetCurrent, false)                                                         \
    X(cuCtxSetCurrent, 4000, cuCtxSetCurrent, false)                                                         \
    X(cuCtxPushCurrent, 2000, cuCtxPushCurrent, false)                                                       \
    X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, false)                                                    \
    X(cuCtxPopCurrent, 2000, cuCtxPopCurrent, false)                                                         \
    X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, false)                                                      \
    X(cuCtxGetDevice, 2000, cuCtxGetDevice, false)                                                           \
    X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, false)                                                       \
    X(cuCtxSynchronize, 2000, cuCtxSynchronize, false)                                                       \
    X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, false)                                                   \
    X(cuMemGetInfo, 3020, cuMemGetInfo_v2, false)                                                            \
    X(cuMemAlloc, 3020, cuMemAlloc_v2, false)                                                                \
    X(cuMemAllocPitch, 3020, cuMemAllocPitch_v2, false)                                                      \
    X(cuMemAllocManaged, 6000, cuMemAllocManaged, false)                                                     \
    X(cuMemFree, 3020, cuMemFree_v2, false)                                                                  \
    X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, false)                                                            \
    X(cuMemcpyHtoD, 7000, cuMemcpyHtoD_v2_ptds, true)                                                        \
    X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, false)                                                            \
    X(cuMemcpyDtoH, 7000, cuMemcpyDtoH_v2_ptds, true)                                                        \
    X(cuMemsetD8, 3020, cuMemsetD8_v2, false)                                                                \
    X(cuMemsetD8, 7000, cuMemsetD8_v2_ptds, true)                                                            \
    X(cuModuleLoad, 2000, cuModuleLoad, false)                                                               \
    X(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx, false)                                                   \
    X(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary, false)                                             \
    X(cuLibraryLoadData, 12000, cuLibraryLoadData, false)                                                    \
    X(cuLibraryLoadFromFile, 12000, cuLibraryLoadFromFile, false)                                            \
    X(cuLibraryUnload, 12000, cuLibraryUnload, false)                                                        \
    X(cuLibraryGetKernel, 12000, cuLibraryGetKernel, false)                                                  \
    X(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal, false)                                                  \
    X(cuKernelGetFunction, 12000, cuKernelGetFunction, false)                                                \
    X(cuCtxGetLimit, 3010, cuCtxGetLimit, false)                                                             \
    X(cuCtxSetLimit, 3010, cuCtxSetLimit, false)                                                             \
    X(cuEventCreate, 2000, cuEventCreate, false)                                                             \
    X(cuEventDestroy, 2000, cuEventDestroy, false)                                                           \
    X(cuEventDestroy, 4000, cuEventDestroy_v2, false)                                                        \
    X(cuEventRecord, 2000, cuEventRecord, false)                                                             \
    X(cuEventSynchronize, 2000, cuEventSynchronize, false)                                                   \
    X(cuEventQuery, 2000, cuEventQuery, false)                                                               \
    X(cuEventRecord, 7000, cuEventRecord_ptsz, true)                                                         \
    X(cuModuleLoadData, 2000, cuModuleLoadData, false)                                                       \
    X(cuModuleUnload, 2000, cuModuleUnload, false)                                                           \
    X(cuModuleGetFunction, 2000, cuModuleGetFunction, false)                                                 \
    X(cuLaunchKernel, 4000, cuLaunchKernel, false)                                                           \
    X(cuLaunchKernel, 7000, cuLaunchKernel_ptsz, true)                                                       \
    X(cuStreamCreate, 2000, cuStreamCreate, false)                                                           \
    X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority, false)                                   \
    X(cuStreamDestroy, 2000, cuStreamDestroy, false)                                                         \
    X(cuStreamDestroy, 4000, cuStreamDestroy_v2, false)                                                      \
    X(cuStreamSynchronize, 2000, cuStreamSynchronize, false)                                                 \
    X(cuStreamSynchronize, 7000, cuStreamSynchronize_ptsz, true)                                             \
    X(cuStreamQuery, 2000, cuStreamQuery, false)                                                             \
    X(cuStreamQuery, 7000, cuStreamQuery_ptsz, true)                                                         \
    X(cuMemAllocAsync, 11020, cuMemAllocAsync, false)                                                        \
    X(cuMemAllocAsync, 11020, cuMemAllocAsync_ptsz, true)                                                    \
    X(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync, false)                                        \
    X(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync_ptsz, true)                                    \
    X(cuMemFreeAsync, 11020, cuMemFreeAsync, false)                                                          \
    X(cuMemFreeAsync, 11020, cuMemFreeAsync_ptsz, true)                                                      \
    X(cuMemPoolCreate, 11020, cuMemPoolCreate, false)                                                        \
    X(cuMemPoolDestroy, 11020, cuMemPoolDestroy, false)                                                      \
    X(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, false)                                                        \
    X(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute, false)                                            \
    X(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute, false)                                            \
    X(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess, false)                                                  \
    X(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool, false)                                    \
    X(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool, false)                                                  \
    X(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool, false)                                                  \
    X(cuMemGetDefaultMemPool, 13000, cuMemGetDefaultMemPool, false)                                          \
    X(cuMemGetMemPool, 13000, cuMemGetMemPool, false)                                                        \
    X(cuMemSetMemPool, 13000, cuMemSetMemPool, false)                                                        \
    X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity, false)                            \
    X(cuMemCreate, 10020, cuMemCreate, false)                                                                \
    X(cuMemRelease, 10020, cuMemRelease, false)                                                              \
    X(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle, false)          \
    X(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle, false)                              \
    X(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle, false)                          \
    X(cuMemAddressReserve, 10020, cuMemAddressReserve, false)                                                \
    X(cuMemAddressFree, 10020, cuMemAddressFree, false)                                                      \
    X(cuMemMap, 10020, cuMemMap, false)                                                                      \
    X(cuMemUnmap, 10020, cuMemUnmap, false)                                                                  \
    X(cuMemSetAccess, 10020, cuMemSetAccess, false)                                                          \
    X(cuMemGetAccess, 10020, cuMemGetAccess, false)                                                          \
    X(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle, false)                                \
    X(cuArrayCreate, 2000, cuArrayCreate, false)                                                             \
    X(cuArrayCreate, 3020, cuArrayCreate_v2, false)                                                          \
    X(cuArray3DCreate, 2000, cuArray3DCreate, false)                                                         \
    X(cuArray3DCreate, 3020, cuArray3DCreate_v2, false)                                                      \
    X(cuArrayGetDescriptor, 3020, cuArrayGetDescriptor_v2, false)                                            \
    X(cuArray3DGetDescriptor, 3020, cuArray3DGetDescriptor_v2, false)                                        \
    X(cuArrayDestroy, 2000, cuArrayDestroy, false)                                                           \
    X(cuArrayGetMemoryRequirements, 11060, cuArrayGetMemoryRequirements, false)                              \
    X(cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate, false)                                           \
    X(cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy, false)                                         \
    X(cuMipmappedArrayGetLevel, 5000, cuMipmappedArrayGetLevel, false)                                       \
    X(cuMipmappedArrayGetMemoryRequirements, 11060, cuMipmappedArrayGetMemoryRequirements, false)            \
    X(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle, false)                                                     \
    X(cuIpcOpenMemHandle, 4010, cuIpcOpenMemHandle, false)                                                   \
    X(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2, false)                                               \
    X(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle, false)                                                 \
    X(cuImportExternalMemory, 10000, cuImportExternalMemory, false)                                          \
    X(cuDestroyExternalMemory, 10000, cuDestroyExternalMemory, false)                                        \
    X(cuGraphCreate, 10000, cuGraphCreate, false)                                                            \
    X(cuGraphDestroy, 10000, cuGraphDestroy, false)                                                          \
    X(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode, false)                                                \
    X(cuGraphAddMemAllocNode, 11040, cuGraphAddMemAllocNode, false)                                          \
    X(cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode, false)                                            \
    X(cuGraphMemAllocNodeGetParams, 11040, cuGraphMemAllocNodeGetParams, false)                              \
    X(cuGraphMemFreeNodeGetParams, 11040, cuGraphMemFreeNodeGetParams, false)                                \
    X(cuGraphGetNodes, 10000, cuGraphGetNodes, false)                                                        \
    X(cuGraphNodeGetType, 10000, cuGraphNodeGetType, false)                                                  \
    X(cuGraphAddNode, 12020, cuGraphAddNode, false)                                                          \
    X(cuGraphAddNode, 12030, cuGraphAddNode_v2, false)                                                       \
    X(cuGraphInstantiate, 10000, cuGraphInstantiate, false)                                                  \
    X(cuGraphInstantiate, 11000, cuGraphInstantiate_v2, false)                                               \
    X(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags, false)                                \
    X(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams, false)                              \
    X(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams_ptsz, true)                          \
    X(cuGraphUpload, 11010, cuGraphUpload, false)                                                            \
    X(cuGraphUpload, 11010, cuGraphUpload_ptsz, true)                                                        \
    X(cuGraphLaunch, 10000, cuGraphLaunch, false)                                                            \
    X(cuGraphLaunch, 10000, cuGraphLaunch_ptsz, true)                                                        \
    X(cuGraphExecDestroy, 10000, cuGraphExecDestroy, false)                                                  \
    X(cuDeviceGetGraphMemAttribute, 11040, cuDeviceGetGraphMemAttribute, false)                              \
    X(cuDeviceSetGraphMemAttribute, 11040, cuDeviceSetGraphMemAttribute, false)                              \
    X(cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim, false)                                              \
    X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, false)                                           \
    X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2_ptsz, true)                                       \
    X(cuStreamEndCapture, 10000, cuStreamEndCapture, false)                                                  \
    X(cuStreamEndCapture, 10000, cuStreamEndCapture_ptsz, true)                                              \
    X(cuStreamIsCapturing, 10000, cuStreamIsCapturing, false)                                                \
    X(cuStreamIsCapturing, 10000, cuStreamIsCapturing_ptsz, true)                                            \
    X(cuDeviceGetDevResource, 12040, cuDeviceGetDevResource, false)                                          \
    X(cuDevResourceGenerateDesc, 12040, cuDevResourceGenerateDesc, false)                                    \
    X(cuGreenCtxCreate, 12040, cuGreenCtxCreate, false)                                                      \
    X(cuGreenCtxDestroy, 12040, cuGreenCtxDestroy, false)                                                    \
    X(cuCtxFromGreenCtx, 12040, cuCtxFromGreenCtx, false)                                                    \
    X(cuGreenCtxStreamCreate, 12050, cuGreenCtxStreamCreate, false)                                          \
    X(cuStreamGetCtx, 9020, cuStreamGetCtx, false)                                                           \
    X(cuStreamGetCtx, 9020, cuStreamGetCtx_ptsz, true)                                                       \
    X(cuStreamGetCtx, 12050, cuStreamGetCtx_v2, false)                                                       \
    X(cuStreamGetCtx, 12050, cuStreamGetCtx_v2_ptsz, true)                                                   \
    X(cuStreamGetDevice, 12080, cuStreamGetDevice, false)                                                    \
    X(cuStreamGetDevice, 12080, cuStreamGetDevice_ptsz, true)                                                \
    X(cuMemGetInfo, 2000, cuMemGetInfo, false)                                                               \
    X(cuMemAlloc, 2000, cuMemAlloc, false)                                                                   \
    X(cuMemAllocPitch, 2000, cuMemAllocPitch, false)                                                         \
    X(cuMemFree, 2000, cuMemFree, false)                                                                     \
    X(cuMemGetAddressRange, 2000, cuMemGetAddressRange, false)                                               \
    X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2, false)

#endif
