/* SPDX-License-Identifier: Apache-2.0
 *
 * The other list: calls that take, give or name memory, or could, by their names, and that are not hooked;
 * each with the reason. Not compiled into anything: tests/hook/interpose/test_coverage.py reads it, walks
 * cuda.h and fails when such a call stands neither here nor in hooked_calls.h or
 * gated_calls.h. Some stand in stream_calls.h as well, for the stream that they are given.
 *
 * X(base, reason)
 *
 * - OWNER: memory of another process or another API. It is charged once, to the process that made it, or is
 * no CUDA memory at all. Not seen: memory that lives on in other processes after its owner has released it
 * and nobody has a descriptor of it.
 * - MAPPED: gives addresses or a second name to memory that is charged already, or to none
 * - HOST: memory of the host
 * - GRAPH: nodes of graphs, charged when the graph is instantiated (graph.c)
 * - OBJECT: a small object, which the driver keeps in the host's memory or in what the context took
 * - MANAGED: moves managed memory, which is charged in full where it was allocated
 * - CHECKPOINT: gives back and takes again what is charged to the process all the while
 * - OUTSIDE: a table of undocumented calls of the driver, for NVIDIA's own libraries
 */
#ifndef CONVGPU_UNHANDLED_CALLS_H
#define CONVGPU_UNHANDLED_CALLS_H

#define CONVGPU_UNHANDLED_CALLS(X)                                                                           \
    X(cuCheckpointProcessCheckpoint, CHECKPOINT)                                                             \
    X(cuCheckpointProcessRestore, CHECKPOINT)                                                                \
    X(cuCtxResetPersistingL2Cache, OBJECT)                                                                   \
    X(cuDeviceGetDefaultMemPool, MAPPED)                                                                     \
    X(cuDeviceGetMemPool, MAPPED)                                                                            \
    X(cuDeviceSetMemPool, MAPPED)                                                                            \
    X(cuEventCreate, OBJECT)                                                                                 \
    X(cuExternalMemoryGetMappedBuffer, OWNER)                                                                \
    X(cuExternalMemoryGetMappedMipmappedArray, OWNER)                                                        \
    X(cuGetExportTable, OUTSIDE)                                                                             \
    X(cuGraphAddBatchMemOpNode, OBJECT)                                                                      \
    X(cuGraphAddChildGraphNode, GRAPH)                                                                       \
    X(cuGraphAddEmptyNode, OBJECT)                                                                           \
    X(cuGraphAddEventRecordNode, OBJECT)                                                                     \
    X(cuGraphAddEventWaitNode, OBJECT)                                                                       \
    X(cuGraphAddExternalSemaphoresSignalNode, OBJECT)                                                        \
    X(cuGraphAddExternalSemaphoresWaitNode, OBJECT)                                                          \
    X(cuGraphAddHostNode, OBJECT)                                                                            \
    X(cuGraphAddMemAllocNode, GRAPH)                                                                         \
    X(cuGraphAddMemFreeNode, GRAPH)                                                                          \
    X(cuGraphAddMemcpyNode, OBJECT)                                                                          \
    X(cuGraphAddMemsetNode, OBJECT)                                                                          \
    X(cuGraphClone, OBJECT)                                                                                  \
    X(cuGraphConditionalHandleCreate, OBJECT)                                                                \
    X(cuGraphCreate, OBJECT)                                                                                 \
    X(cuGraphDestroy, OBJECT)                                                                                \
    X(cuGraphRetainUserObject, OBJECT)                                                                       \
    X(cuGraphicsMapResources, OWNER)                                                                         \
    X(cuGraphicsResourceGetMappedMipmappedArray, OWNER)                                                      \
    X(cuGraphicsResourceGetMappedPointer, OWNER)                                                             \
    X(cuGraphicsSubResourceGetMappedArray, OWNER)                                                            \
    X(cuGraphicsUnmapResources, OWNER)                                                                       \
    X(cuGraphicsUnregisterResource, OWNER)                                                                   \
    X(cuDestroyExternalMemory, OWNER)                                                                        \
    X(cuImportExternalMemory, OWNER)                                                                         \
    X(cuImportExternalSemaphore, OBJECT)                                                                     \
    X(cuIpcCloseMemHandle, OWNER)                                                                            \
    X(cuIpcOpenEventHandle, OBJECT)                                                                          \
    X(cuIpcOpenMemHandle, OWNER)                                                                             \
    X(cuLaunchHostFunc, OBJECT)                                                                              \
    X(cuLinkAddData, HOST)                                                                                   \
    X(cuLinkAddFile, HOST)                                                                                   \
    X(cuLinkCreate, HOST)                                                                                    \
    X(cuLogicalEndpointAddDevice, MAPPED)                                                                    \
    X(cuLogicalEndpointBindAddr, MAPPED)                                                                     \
    X(cuLogicalEndpointBindMem, MAPPED)                                                                      \
    X(cuLogicalEndpointCreate, OBJECT)                                                                       \
    X(cuLogicalEndpointIdReserve, OBJECT)                                                                    \
    X(cuLogicalEndpointImport, OWNER)                                                                        \
    X(cuMemAddressFree, MAPPED)                                                                              \
    X(cuMemAddressReserve, MAPPED)                                                                           \
    X(cuMemGetDefaultMemPool, MAPPED)                                                                        \
    X(cuMemGetMemPool, MAPPED)                                                                               \
    X(cuMemMapArrayAsync, MAPPED)                                                                            \
    X(cuMemPoolImportFromShareableHandle, OWNER)                                                             \
    X(cuMemPoolImportPointer, OWNER)                                                                         \
    X(cuMemSetAccess, MAPPED)                                                                                \
    X(cuMemSetMemPool, MAPPED)                                                                               \
    X(cuMulticastAddDevice, MAPPED)                                                                          \
    X(cuMulticastBindMem, MAPPED)                                                                            \
    X(cuMulticastCreate, OBJECT)                                                                             \
    X(cuMulticastUnbind, MAPPED)                                                                             \
    X(cuStreamAttachMemAsync, MANAGED)                                                                       \
    X(cuSurfObjectCreate, OBJECT)                                                                            \
    X(cuTexObjectCreate, OBJECT)                                                                             \
    X(cuTexRefCreate, OBJECT)                                                                                \
    X(cuUserObjectCreate, OBJECT)                                                                            \
    X(cuUserObjectRetain, OBJECT)

#endif
