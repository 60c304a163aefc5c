/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills of the CUDA driver's binary interface, each with its twin for per-thread default streams.
 */
#ifndef SIMULATED_COPY_API_H
#define SIMULATED_COPY_API_H

#include "libcuda/context/stream_api.h"

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_ARRAY = 3, CU_MEMORYTYPE_UNIFIED = 4 };

struct copied_side {
    size_t x, y;
    int type;
    void *host;
    CUdeviceptr device;
    void *array;
    size_t pitch;
};

typedef struct {
    struct copied_side from, to;
    size_t width, height;
} CUDA_MEMCPY2D;
_Static_assert(sizeof(CUDA_MEMCPY2D) == 128, "as in cuda.h");

/* X(call, its twin, (parameters)) */
#define COPIES(X)                                                                                            \
    X(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t size))                              \
    X(cuMemcpyAsync, cuMemcpyAsync_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream))   \
    X(cuMemcpyPeer, cuMemcpyPeer_ptds,                                                                       \
      (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t size))                      \
    X(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,                                                             \
      (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t size, CUstream stream))     \
    X(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void *from, size_t size))                \
    X(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void *to, CUdeviceptr from, size_t size))                      \
    X(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, size_t size))                \
    X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,                                                       \
      (CUdeviceptr to, const void *from, size_t size, CUstream stream))                                      \
    X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,                                                       \
      (void *to, CUdeviceptr from, size_t size, CUstream stream))                                            \
    X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,                                                       \
      (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream))                                      \
    X(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *copy))                                        \
    X(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *copy))                      \
    X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *copy, CUstream stream))             \
    X(cuMemsetD8_v2, cuMemsetD8_v2_ptds, (CUdeviceptr to, unsigned char value, size_t count))                \
    X(cuMemsetD16_v2, cuMemsetD16_v2_ptds, (CUdeviceptr to, unsigned short value, size_t count))             \
    X(cuMemsetD32_v2, cuMemsetD32_v2_ptds, (CUdeviceptr to, unsigned value, size_t count))                   \
    X(cuMemsetD8Async, cuMemsetD8Async_ptsz,                                                                 \
      (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                                  \
    X(cuMemsetD16Async, cuMemsetD16Async_ptsz,                                                               \
      (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))                                 \
    X(cuMemsetD32Async, cuMemsetD32Async_ptsz,                                                               \
      (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                                       \
    X(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds,                                                                 \
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t count, size_t height))                      \
    X(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds,                                                               \
      (CUdeviceptr to, size_t pitch, unsigned short value, size_t count, size_t height))                     \
    X(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds,                                                               \
      (CUdeviceptr to, size_t pitch, unsigned value, size_t count, size_t height))                           \
    X(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,                                                             \
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t count, size_t height, CUstream stream))     \
    X(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz,                                                           \
      (CUdeviceptr to, size_t pitch, unsigned short value, size_t count, size_t height, CUstream stream))    \
    X(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz,                                                           \
      (CUdeviceptr to, size_t pitch, unsigned value, size_t count, size_t height, CUstream stream))

#define DECLARE_COPY(call, twin, parameters)                                                                 \
    CUDA_EXPORT CUresult call parameters;                                                                    \
    CUDA_EXPORT CUresult twin parameters;
COPIES(DECLARE_COPY)
#undef DECLARE_COPY

#endif
