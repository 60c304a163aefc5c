/* SPDX-License-Identifier: Apache-2.0
 *
 * THE list of gated submissions: calls that let a device read or write memory. While the process is suspended
 * they wait (gate/gate.h). But for launches, nothing else is done with them: one line for each and no code;
 * exported symbols, the version script, the table of real functions and the replacements of lookups are made
 * from it, as from hooked_calls.h.
 *
 * X(symbol, base, since, stream, words, on)
 *   symbol, base, since, stream   as in hooked_calls.h
 *   words    how many arguments. Each is one machine word in the calling conventions of x86-64 and AArch64
 *            (an integer, a pointer, or a CUmemLocation, which has 8 bytes), and is passed on as such; so the
 *            arguments are called a, b, c ...
 *   on       the stream that the call submits to, or 0: then it is in no capture
 *
 * Made from cuda.h and cudaTypedefs.h of CUDA 12.9 and 13.5; tests/hook/interpose/test_coverage.py compares
 * them again. Not gated: what no device executes on memory (events, host functions, semaphores), and what
 * takes or gives memory (hooked_calls.h).
 */
#ifndef CONVGPU_GATED_CALLS_H
#define CONVGPU_GATED_CALLS_H

#include <stdint.h>

typedef uint64_t word;

#define CONVGPU_PARAMETERS_1  word a
#define CONVGPU_PARAMETERS_2  word a, word b
#define CONVGPU_PARAMETERS_3  word a, word b, word c
#define CONVGPU_PARAMETERS_4  word a, word b, word c, word d
#define CONVGPU_PARAMETERS_5  word a, word b, word c, word d, word e
#define CONVGPU_PARAMETERS_6  word a, word b, word c, word d, word e, word f
#define CONVGPU_PARAMETERS_7  word a, word b, word c, word d, word e, word f, word g
#define CONVGPU_PARAMETERS_8  word a, word b, word c, word d, word e, word f, word g, word h
#define CONVGPU_PARAMETERS_9  word a, word b, word c, word d, word e, word f, word g, word h, word i
#define CONVGPU_PARAMETERS_10 word a, word b, word c, word d, word e, word f, word g, word h, word i, word j
#define CONVGPU_PARAMETERS_11                                                                                \
    word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k

#define CONVGPU_ARGUMENTS_1  a
#define CONVGPU_ARGUMENTS_2  a, b
#define CONVGPU_ARGUMENTS_3  a, b, c
#define CONVGPU_ARGUMENTS_4  a, b, c, d
#define CONVGPU_ARGUMENTS_5  a, b, c, d, e
#define CONVGPU_ARGUMENTS_6  a, b, c, d, e, f
#define CONVGPU_ARGUMENTS_7  a, b, c, d, e, f, g
#define CONVGPU_ARGUMENTS_8  a, b, c, d, e, f, g, h
#define CONVGPU_ARGUMENTS_9  a, b, c, d, e, f, g, h, i
#define CONVGPU_ARGUMENTS_10 a, b, c, d, e, f, g, h, i, j
#define CONVGPU_ARGUMENTS_11 a, b, c, d, e, f, g, h, i, j, k

/* The stream of a CUlaunchConfig. */
#define CONFIG_STREAM(config) ((config) ? *(const word *)(uintptr_t)((config) + 32) : 0)

/* The launches of one function, which is looked at first (code/launch.h): those that pass arguments on the
 * stack, and name the function first, and the others. */
#define CONVGPU_LONG_LAUNCH_CALLS(X)                                                                         \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, NONE, 10, i)                               \
    X(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 9000, PTSZ, 10, i)                          \
    X(cuLaunchKernel, cuLaunchKernel, 4000, NONE, 11, i)                                                     \
    X(cuLaunchKernel_ptsz, cuLaunchKernel, 7000, PTSZ, 11, i)

#define CONVGPU_SHORT_LAUNCH_CALLS(X)                                                                        \
    X(cuLaunch, cuLaunch, 2000, NONE, 1, 0)                                                                  \
    X(cuLaunchGrid, cuLaunchGrid, 2000, NONE, 3, 0)                                                          \
    X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, NONE, 4, d)                                                \
    X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, NONE, 4, CONFIG_STREAM(a))                                  \
    X(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060, PTSZ, 4, CONFIG_STREAM(a))

#define CONVGPU_ONE_LAUNCH_CALLS(X)                                                                          \
    CONVGPU_LONG_LAUNCH_CALLS(X)                                                                             \
    CONVGPU_SHORT_LAUNCH_CALLS(X)

/* The function of each of them, a CUfunction or a CUkernel. */
#define LAUNCHED_cuLaunch                       a
#define LAUNCHED_cuLaunchCooperativeKernel      a
#define LAUNCHED_cuLaunchCooperativeKernel_ptsz a
#define LAUNCHED_cuLaunchGrid                   a
#define LAUNCHED_cuLaunchGridAsync              a
#define LAUNCHED_cuLaunchKernel                 a
#define LAUNCHED_cuLaunchKernel_ptsz            a
#define LAUNCHED_cuLaunchKernelEx               b
#define LAUNCHED_cuLaunchKernelEx_ptsz          b

/* The launch of one function on each of several devices. */
#define CONVGPU_SEVERAL_LAUNCH_CALLS(X)                                                                      \
    X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, NONE, 3, 0)

#define CONVGPU_OTHER_GATED_CALLS(X)                                                                         \
    X(cuFabricCpyBatchAsync, cuFabricCpyBatchAsync, 13050, NONE, 4, d)                                       \
    X(cuFabricCpyBatchAsync_ptsz, cuFabricCpyBatchAsync, 13050, PTSZ, 4, d)                                  \
    X(cuGraphLaunch, cuGraphLaunch, 10000, NONE, 2, b)                                                       \
    X(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, PTSZ, 2, b)                                                  \
    X(cuGraphUpload, cuGraphUpload, 11010, NONE, 2, b)                                                       \
    X(cuGraphUpload_ptsz, cuGraphUpload, 11010, PTSZ, 2, b)                                                  \
    X(cuMemAdvise, cuMemAdvise, 8000, NONE, 4, 0)                                                            \
    X(cuMemAdvise_v2, cuMemAdvise, 12020, NONE, 4, 0)                                                        \
    X(cuMemBatchDecompressAsync, cuMemBatchDecompressAsync, 12060, NONE, 5, e)                               \
    X(cuMemBatchDecompressAsync_ptsz, cuMemBatchDecompressAsync, 12060, PTSZ, 5, e)                          \
    X(cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, 13000, NONE, 8, h)               \
    X(cuMemDiscardAndPrefetchBatchAsync_ptsz, cuMemDiscardAndPrefetchBatchAsync, 13000, PTSZ, 8, h)          \
    X(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000, NONE, 5, e)                                     \
    X(cuMemDiscardBatchAsync_ptsz, cuMemDiscardBatchAsync, 13000, PTSZ, 5, e)                                \
    X(cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, NONE, 4, d)                                              \
    X(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync, 8000, PTSZ, 4, d)                                         \
    X(cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020, NONE, 5, e)                                          \
    X(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync, 12020, PTSZ, 5, e)                                     \
    X(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000, NONE, 8, h)                                   \
    X(cuMemPrefetchBatchAsync_ptsz, cuMemPrefetchBatchAsync, 13000, PTSZ, 8, h)                              \
    X(cuMemcpy, cuMemcpy, 4000, NONE, 3, 0)                                                                  \
    X(cuMemcpy_ptds, cuMemcpy, 7000, PTSZ, 3, 0)                                                             \
    X(cuMemcpy2D, cuMemcpy2D, 2000, NONE, 1, 0)                                                              \
    X(cuMemcpy2D_v2, cuMemcpy2D, 3020, NONE, 1, 0)                                                           \
    X(cuMemcpy2D_v2_ptds, cuMemcpy2D, 7000, PTSZ, 1, 0)                                                      \
    X(cuMemcpy2DAsync, cuMemcpy2DAsync, 2000, NONE, 2, b)                                                    \
    X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, NONE, 2, b)                                                 \
    X(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync, 7000, PTSZ, 2, b)                                            \
    X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned, 2000, NONE, 1, 0)                                            \
    X(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, NONE, 1, 0)                                         \
    X(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned, 7000, PTSZ, 1, 0)                                    \
    X(cuMemcpy3D, cuMemcpy3D, 2000, NONE, 1, 0)                                                              \
    X(cuMemcpy3D_v2, cuMemcpy3D, 3020, NONE, 1, 0)                                                           \
    X(cuMemcpy3D_v2_ptds, cuMemcpy3D, 7000, PTSZ, 1, 0)                                                      \
    X(cuMemcpy3DAsync, cuMemcpy3DAsync, 2000, NONE, 2, b)                                                    \
    X(cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, NONE, 2, b)                                                 \
    X(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync, 7000, PTSZ, 2, b)                                            \
    X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080, NONE, 5, e)                                         \
    X(cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync, 12080, PTSZ, 5, e)                                    \
    X(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000, NONE, 4, d)                                      \
    X(cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DBatchAsync, 13000, PTSZ, 4, d)                                 \
    X(cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, NONE, 1, 0)                                                      \
    X(cuMemcpy3DPeer_ptds, cuMemcpy3DPeer, 7000, PTSZ, 1, 0)                                                 \
    X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, NONE, 2, b)                                            \
    X(cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync, 7000, PTSZ, 2, b)                                       \
    X(cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, 13020, NONE, 3, c)                       \
    X(cuMemcpy3DWithAttributesAsync_ptsz, cuMemcpy3DWithAttributesAsync, 13020, PTSZ, 3, c)                  \
    X(cuMemcpyAsync, cuMemcpyAsync, 4000, NONE, 4, d)                                                        \
    X(cuMemcpyAsync_ptsz, cuMemcpyAsync, 7000, PTSZ, 4, d)                                                   \
    X(cuMemcpyAtoA, cuMemcpyAtoA, 2000, NONE, 5, 0)                                                          \
    X(cuMemcpyAtoA_v2, cuMemcpyAtoA, 3020, NONE, 5, 0)                                                       \
    X(cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA, 7000, PTSZ, 5, 0)                                                  \
    X(cuMemcpyAtoD, cuMemcpyAtoD, 2000, NONE, 4, 0)                                                          \
    X(cuMemcpyAtoD_v2, cuMemcpyAtoD, 3020, NONE, 4, 0)                                                       \
    X(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD, 7000, PTSZ, 4, 0)                                                  \
    X(cuMemcpyAtoH, cuMemcpyAtoH, 2000, NONE, 4, 0)                                                          \
    X(cuMemcpyAtoH_v2, cuMemcpyAtoH, 3020, NONE, 4, 0)                                                       \
    X(cuMemcpyAtoH_v2_ptds, cuMemcpyAtoH, 7000, PTSZ, 4, 0)                                                  \
    X(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync, 2000, NONE, 5, e)                                                \
    X(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync, 3020, NONE, 5, e)                                             \
    X(cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoHAsync, 7000, PTSZ, 5, e)                                        \
    X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080, NONE, 9, i)                                             \
    X(cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync, 12080, PTSZ, 9, i)                                        \
    X(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000, NONE, 8, h)                                          \
    X(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync, 13000, PTSZ, 8, h)                                     \
    X(cuMemcpyDtoA, cuMemcpyDtoA, 2000, NONE, 4, 0)                                                          \
    X(cuMemcpyDtoA_v2, cuMemcpyDtoA, 3020, NONE, 4, 0)                                                       \
    X(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA, 7000, PTSZ, 4, 0)                                                  \
    X(cuMemcpyDtoD, cuMemcpyDtoD, 2000, NONE, 3, 0)                                                          \
    X(cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, NONE, 3, 0)                                                       \
    X(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD, 7000, PTSZ, 3, 0)                                                  \
    X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync, 3000, NONE, 4, d)                                                \
    X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, NONE, 4, d)                                             \
    X(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync, 7000, PTSZ, 4, d)                                        \
    X(cuMemcpyDtoH, cuMemcpyDtoH, 2000, NONE, 3, 0)                                                          \
    X(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, NONE, 3, 0)                                                       \
    X(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH, 7000, PTSZ, 3, 0)                                                  \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync, 2000, NONE, 4, d)                                                \
    X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, NONE, 4, d)                                             \
    X(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync, 7000, PTSZ, 4, d)                                        \
    X(cuMemcpyHtoA, cuMemcpyHtoA, 2000, NONE, 4, 0)                                                          \
    X(cuMemcpyHtoA_v2, cuMemcpyHtoA, 3020, NONE, 4, 0)                                                       \
    X(cuMemcpyHtoA_v2_ptds, cuMemcpyHtoA, 7000, PTSZ, 4, 0)                                                  \
    X(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync, 2000, NONE, 5, e)                                                \
    X(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync, 3020, NONE, 5, e)                                             \
    X(cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoAAsync, 7000, PTSZ, 5, e)                                        \
    X(cuMemcpyHtoD, cuMemcpyHtoD, 2000, NONE, 3, 0)                                                          \
    X(cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, NONE, 3, 0)                                                       \
    X(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD, 7000, PTSZ, 3, 0)                                                  \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync, 2000, NONE, 4, d)                                                \
    X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020, NONE, 4, d)                                             \
    X(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync, 7000, PTSZ, 4, d)                                        \
    X(cuMemcpyPeer, cuMemcpyPeer, 4000, NONE, 5, 0)                                                          \
    X(cuMemcpyPeer_ptds, cuMemcpyPeer, 7000, PTSZ, 5, 0)                                                     \
    X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, NONE, 6, f)                                                \
    X(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync, 7000, PTSZ, 6, f)                                           \
    X(cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, 13020, NONE, 5, e)                           \
    X(cuMemcpyWithAttributesAsync_ptsz, cuMemcpyWithAttributesAsync, 13020, PTSZ, 5, e)                      \
    X(cuMemsetD16, cuMemsetD16, 2000, NONE, 3, 0)                                                            \
    X(cuMemsetD16_v2, cuMemsetD16, 3020, NONE, 3, 0)                                                         \
    X(cuMemsetD16_v2_ptds, cuMemsetD16, 7000, PTSZ, 3, 0)                                                    \
    X(cuMemsetD16Async, cuMemsetD16Async, 3020, NONE, 4, d)                                                  \
    X(cuMemsetD16Async_ptsz, cuMemsetD16Async, 7000, PTSZ, 4, d)                                             \
    X(cuMemsetD2D16, cuMemsetD2D16, 2000, NONE, 5, 0)                                                        \
    X(cuMemsetD2D16_v2, cuMemsetD2D16, 3020, NONE, 5, 0)                                                     \
    X(cuMemsetD2D16_v2_ptds, cuMemsetD2D16, 7000, PTSZ, 5, 0)                                                \
    X(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, NONE, 6, f)                                              \
    X(cuMemsetD2D16Async_ptsz, cuMemsetD2D16Async, 7000, PTSZ, 6, f)                                         \
    X(cuMemsetD2D32, cuMemsetD2D32, 2000, NONE, 5, 0)                                                        \
    X(cuMemsetD2D32_v2, cuMemsetD2D32, 3020, NONE, 5, 0)                                                     \
    X(cuMemsetD2D32_v2_ptds, cuMemsetD2D32, 7000, PTSZ, 5, 0)                                                \
    X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, NONE, 6, f)                                              \
    X(cuMemsetD2D32Async_ptsz, cuMemsetD2D32Async, 7000, PTSZ, 6, f)                                         \
    X(cuMemsetD2D8, cuMemsetD2D8, 2000, NONE, 5, 0)                                                          \
    X(cuMemsetD2D8_v2, cuMemsetD2D8, 3020, NONE, 5, 0)                                                       \
    X(cuMemsetD2D8_v2_ptds, cuMemsetD2D8, 7000, PTSZ, 5, 0)                                                  \
    X(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, NONE, 6, f)                                                \
    X(cuMemsetD2D8Async_ptsz, cuMemsetD2D8Async, 7000, PTSZ, 6, f)                                           \
    X(cuMemsetD32, cuMemsetD32, 2000, NONE, 3, 0)                                                            \
    X(cuMemsetD32_v2, cuMemsetD32, 3020, NONE, 3, 0)                                                         \
    X(cuMemsetD32_v2_ptds, cuMemsetD32, 7000, PTSZ, 3, 0)                                                    \
    X(cuMemsetD32Async, cuMemsetD32Async, 3020, NONE, 4, d)                                                  \
    X(cuMemsetD32Async_ptsz, cuMemsetD32Async, 7000, PTSZ, 4, d)                                             \
    X(cuMemsetD8, cuMemsetD8, 2000, NONE, 3, 0)                                                              \
    X(cuMemsetD8_v2, cuMemsetD8, 3020, NONE, 3, 0)                                                           \
    X(cuMemsetD8_v2_ptds, cuMemsetD8, 7000, PTSZ, 3, 0)                                                      \
    X(cuMemsetD8Async, cuMemsetD8Async, 3020, NONE, 4, d)                                                    \
    X(cuMemsetD8Async_ptsz, cuMemsetD8Async, 7000, PTSZ, 4, d)                                               \
    X(cuStreamBatchMemOp, cuStreamBatchMemOp, 8000, NONE, 4, a)                                              \
    X(cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp, 8000, PTSZ, 4, a)                                         \
    X(cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070, NONE, 4, a)                                          \
    X(cuStreamBatchMemOp_v2_ptsz, cuStreamBatchMemOp, 11070, PTSZ, 4, a)                                     \
    X(cuStreamWaitValue32, cuStreamWaitValue32, 8000, NONE, 4, a)                                            \
    X(cuStreamWaitValue32_ptsz, cuStreamWaitValue32, 8000, PTSZ, 4, a)                                       \
    X(cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070, NONE, 4, a)                                        \
    X(cuStreamWaitValue32_v2_ptsz, cuStreamWaitValue32, 11070, PTSZ, 4, a)                                   \
    X(cuStreamWaitValue64, cuStreamWaitValue64, 9000, NONE, 4, a)                                            \
    X(cuStreamWaitValue64_ptsz, cuStreamWaitValue64, 9000, PTSZ, 4, a)                                       \
    X(cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070, NONE, 4, a)                                        \
    X(cuStreamWaitValue64_v2_ptsz, cuStreamWaitValue64, 11070, PTSZ, 4, a)                                   \
    X(cuStreamWriteValue32, cuStreamWriteValue32, 8000, NONE, 4, a)                                          \
    X(cuStreamWriteValue32_ptsz, cuStreamWriteValue32, 8000, PTSZ, 4, a)                                     \
    X(cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, NONE, 4, a)                                      \
    X(cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue32, 11070, PTSZ, 4, a)                                 \
    X(cuStreamWriteValue64, cuStreamWriteValue64, 9000, NONE, 4, a)                                          \
    X(cuStreamWriteValue64_ptsz, cuStreamWriteValue64, 9000, PTSZ, 4, a)                                     \
    X(cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070, NONE, 4, a)                                      \
    X(cuStreamWriteValue64_v2_ptsz, cuStreamWriteValue64, 11070, PTSZ, 4, a)

#define CONVGPU_GATED_CALLS(X)                                                                               \
    CONVGPU_ONE_LAUNCH_CALLS(X)                                                                              \
    CONVGPU_SEVERAL_LAUNCH_CALLS(X)                                                                          \
    CONVGPU_OTHER_GATED_CALLS(X)

#endif
