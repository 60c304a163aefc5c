/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills of the CUDA driver's binary interface, each with its twin for per-thread default streams.
 */
#ifndef SIMULATED_COPY_API_H
#define SIMULATED_COPY_API_H

#include "libcuda/context/stream_api.h"
#include "libcuda/memory/array_api.h"

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_ARRAY = 3, CU_MEMORYTYPE_UNIFIED = 4 };

struct copied_side {
    size_t x, y;
    int type;
    void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch;
};

typedef struct {
    struct copied_side from, to;
    size_t width, height;
} CUDA_MEMCPY2D;
_Static_assert(sizeof(CUDA_MEMCPY2D) == 128, "as in cuda.h");

struct copied_solid {
    size_t x, y, z, level; /* level: 0 */
    int type;
    void *host;
    CUdeviceptr device;
    CUarray array;
    void *context; /* of CUDA_MEMCPY3D_PEER; NULL in the other */
    size_t pitch, height;
};

/* CUDA_MEMCPY3D_PEER has the same form. */
typedef struct {
    struct copied_solid from, to;
    size_t width, height, depth;
} CUDA_MEMCPY3D;
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "as in cuda.h");

typedef struct {
    int order; /* in which the source is read: 1 with the stream, 2 in the call, 3 at any time */
    CUmemLocation from_hint, to_hint;
    unsigned flags;
} CUmemcpyAttributes;
_Static_assert(sizeof(CUmemcpyAttributes) == 24, "as in cuda.h");

enum { CU_MEMCPY_OPERAND_TYPE_POINTER = 1, CU_MEMCPY_OPERAND_TYPE_ARRAY = 2 };

struct copied_operand {
    int type;
    union {
        struct {
            CUdeviceptr address;
            size_t row, layer; /* elements, rows; 0: no gaps */
            CUmemLocation hint;
        } pointer;
        struct {
            CUarray array;
            size_t x, y, z; /* elements */
        } array;
    } of;
};

typedef struct {
    struct copied_operand from, to;
    size_t width, height, depth; /* elements */
    int order;
    unsigned flags;
} CUDA_MEMCPY3D_BATCH_OP;
_Static_assert(sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112, "as in cuda.h");

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
    X(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *copy))                                        \
    X(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *copy, CUstream stream))             \
    X(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D *copy))                                      \
    X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D *copy, CUstream stream))           \
    X(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds, (CUdeviceptr to, CUarray from, size_t at, size_t size))         \
    X(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds, (CUarray to, size_t at, CUdeviceptr from, size_t size))         \
    X(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, (void *to, CUarray from, size_t at, size_t size))               \
    X(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds, (CUarray to, size_t at, const void *from, size_t size))         \
    X(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds,                                                                 \
      (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t size))                                 \
    X(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz,                                                       \
      (void *to, CUarray from, size_t at, size_t size, CUstream stream))                                     \
    X(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz,                                                       \
      (CUarray to, size_t at, const void *from, size_t size, CUstream stream))                               \
    X(cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz,                                                           \
      (CUdeviceptr * to, CUdeviceptr * from, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,    \
       size_t *first, size_t kinds, size_t *failed, CUstream stream))                                        \
    X(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz,                                                     \
      (CUdeviceptr * to, CUdeviceptr * from, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,    \
       size_t *first, size_t kinds, CUstream stream))                                                        \
    X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz,                                                       \
      (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags,               \
       CUstream stream))                                                                                     \
    X(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz,                                                 \
      (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream))             \
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
