/* SPDX-License-Identifier: Apache-2.0
 *
 * THE list of calls that are given a stream and are neither hooked nor gated: events, questions, calls of the
 * host. Given the default stream of a thread, each makes it if it is not there yet, and it takes memory of
 * the device (streams/thread_stream.h). Nothing else is done with them: one line for each and no code;
 * exported symbols, the version script, the table of real functions and the replacements of lookups are made
 * from it, as from hooked_calls.h.
 *
 * X(symbol, base, since, stream, words, on)     as in gated_calls.h
 *
 * Made from cuda.h, cudaGL.h and their typedefs of CUDA 12.9 and 13.5; tests/hook/interpose/test_coverage.py
 * compares them again.
 */
#ifndef CONVGPU_STREAM_CALLS_H
#define CONVGPU_STREAM_CALLS_H

#include "tables/gated_calls.h"

/* Of two, the one that can be a thread's own. */
#define EITHER_STREAM(one, other) ((other) != CU_STREAM_PER_THREAD && IS_OWN_PTSZ(one) ? (one) : (other))

/* Whether a call's stream is the thread's own: of a call as such, and of its twin. */
#define IS_OWN_NONE(on) ((on) == CU_STREAM_PER_THREAD)
#define IS_OWN_PTSZ(on) ((on) == 0 || (on) == CU_STREAM_PER_THREAD)

#define CONVGPU_STREAM_CALLS(X)                                                                              \
    X(cuEventRecord, cuEventRecord, 2000, NONE, 2, b)                                                        \
    X(cuEventRecord_ptsz, cuEventRecord, 7000, PTSZ, 2, b)                                                   \
    X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, NONE, 3, b)                                     \
    X(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags, 11010, PTSZ, 3, b)                                \
    X(cuGLMapBufferObjectAsync, cuGLMapBufferObjectAsync, 2030, NONE, 4, d)                                  \
    X(cuGLMapBufferObjectAsync_v2, cuGLMapBufferObjectAsync, 3020, NONE, 4, d)                               \
    X(cuGLMapBufferObjectAsync_v2_ptsz, cuGLMapBufferObjectAsync, 7000, PTSZ, 4, d)                          \
    X(cuGLUnmapBufferObjectAsync, cuGLUnmapBufferObjectAsync, 2030, NONE, 2, b)                              \
    X(cuGraphicsMapResources, cuGraphicsMapResources, 3000, NONE, 3, c)                                      \
    X(cuGraphicsMapResources_ptsz, cuGraphicsMapResources, 7000, PTSZ, 3, c)                                 \
    X(cuGraphicsUnmapResources, cuGraphicsUnmapResources, 3000, NONE, 3, c)                                  \
    X(cuGraphicsUnmapResources_ptsz, cuGraphicsUnmapResources, 7000, PTSZ, 3, c)                             \
    X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, NONE, 3, a)                                                 \
    X(cuLaunchHostFunc_ptsz, cuLaunchHostFunc, 10000, PTSZ, 3, a)                                            \
    X(cuLaunchHostFunc_v2, cuLaunchHostFunc, 13010, NONE, 4, a)                                              \
    X(cuLaunchHostFunc_v2_ptsz, cuLaunchHostFunc, 13010, PTSZ, 4, a)                                         \
    X(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, NONE, 3, c)                                             \
    X(cuMemMapArrayAsync_ptsz, cuMemMapArrayAsync, 11010, PTSZ, 3, c)                                        \
    X(cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters, 11070, NONE, 3, CONFIG_STREAM(c))          \
    X(cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxPotentialClusterSize, 11070, NONE, 3,                \
      CONFIG_STREAM(c))                                                                                      \
    X(cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, 10000, NONE, 4, d)                   \
    X(cuSignalExternalSemaphoresAsync_ptsz, cuSignalExternalSemaphoresAsync, 10000, PTSZ, 4, d)              \
    X(cuStreamAddCallback, cuStreamAddCallback, 5000, NONE, 4, a)                                            \
    X(cuStreamAddCallback_ptsz, cuStreamAddCallback, 7000, PTSZ, 4, a)                                       \
    X(cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, NONE, 4, a)                                      \
    X(cuStreamAttachMemAsync_ptsz, cuStreamAttachMemAsync, 7000, PTSZ, 4, a)                                 \
    X(cuStreamCopyAttributes, cuStreamCopyAttributes, 11000, NONE, 2, EITHER_STREAM(a, b))                   \
    X(cuStreamCopyAttributes_ptsz, cuStreamCopyAttributes, 11000, PTSZ, 2, EITHER_STREAM(a, b))              \
    X(cuStreamGetAttribute, cuStreamGetAttribute, 11000, NONE, 3, a)                                         \
    X(cuStreamGetAttribute_ptsz, cuStreamGetAttribute, 11000, PTSZ, 3, a)                                    \
    X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, NONE, 3, a)                                     \
    X(cuStreamGetCaptureInfo_ptsz, cuStreamGetCaptureInfo, 10010, PTSZ, 3, a)                                \
    X(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo, 11030, NONE, 6, a)                                  \
    X(cuStreamGetCaptureInfo_v2_ptsz, cuStreamGetCaptureInfo, 11030, PTSZ, 6, a)                             \
    X(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo, 12030, NONE, 7, a)                                  \
    X(cuStreamGetCaptureInfo_v3_ptsz, cuStreamGetCaptureInfo, 12030, PTSZ, 7, a)                             \
    X(cuStreamGetCtx, cuStreamGetCtx, 9020, NONE, 2, a)                                                      \
    X(cuStreamGetCtx_ptsz, cuStreamGetCtx, 9020, PTSZ, 2, a)                                                 \
    X(cuStreamGetCtx_v2, cuStreamGetCtx, 12050, NONE, 3, a)                                                  \
    X(cuStreamGetCtx_v2_ptsz, cuStreamGetCtx, 12050, PTSZ, 3, a)                                             \
    X(cuStreamGetDevResource, cuStreamGetDevResource, 13010, NONE, 3, a)                                     \
    X(cuStreamGetDevResource_ptsz, cuStreamGetDevResource, 13010, PTSZ, 3, a)                                \
    X(cuStreamGetDevice, cuStreamGetDevice, 12080, NONE, 2, a)                                               \
    X(cuStreamGetDevice_ptsz, cuStreamGetDevice, 12080, PTSZ, 2, a)                                          \
    X(cuStreamGetFlags, cuStreamGetFlags, 5050, NONE, 2, a)                                                  \
    X(cuStreamGetFlags_ptsz, cuStreamGetFlags, 7000, PTSZ, 2, a)                                             \
    X(cuStreamGetGreenCtx, cuStreamGetGreenCtx, 12040, NONE, 2, a)                                           \
    X(cuStreamGetId, cuStreamGetId, 12000, NONE, 2, a)                                                       \
    X(cuStreamGetId_ptsz, cuStreamGetId, 12000, PTSZ, 2, a)                                                  \
    X(cuStreamGetPriority, cuStreamGetPriority, 5050, NONE, 2, a)                                            \
    X(cuStreamGetPriority_ptsz, cuStreamGetPriority, 7000, PTSZ, 2, a)                                       \
    X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, NONE, 2, a)                                           \
    X(cuStreamIsCapturing_ptsz, cuStreamIsCapturing, 10000, PTSZ, 2, a)                                      \
    X(cuStreamQuery, cuStreamQuery, 2000, NONE, 1, a)                                                        \
    X(cuStreamQuery_ptsz, cuStreamQuery, 7000, PTSZ, 1, a)                                                   \
    X(cuStreamSetAttribute, cuStreamSetAttribute, 11000, NONE, 3, a)                                         \
    X(cuStreamSetAttribute_ptsz, cuStreamSetAttribute, 11000, PTSZ, 3, a)                                    \
    X(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies, 11030, NONE, 4, a)               \
    X(cuStreamUpdateCaptureDependencies_ptsz, cuStreamUpdateCaptureDependencies, 11030, PTSZ, 4, a)          \
    X(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies, 12030, NONE, 5, a)            \
    X(cuStreamUpdateCaptureDependencies_v2_ptsz, cuStreamUpdateCaptureDependencies, 12030, PTSZ, 5, a)       \
    X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, NONE, 3, a)                                                \
    X(cuStreamWaitEvent_ptsz, cuStreamWaitEvent, 7000, PTSZ, 3, a)                                           \
    X(cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, 10000, NONE, 4, d)                       \
    X(cuWaitExternalSemaphoresAsync_ptsz, cuWaitExternalSemaphoresAsync, 10000, PTSZ, 4, d)

#endif
