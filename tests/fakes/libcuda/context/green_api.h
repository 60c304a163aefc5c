/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts of the CUDA driver's binary interface, with all multiprocessors as their one resource.
 */
#ifndef SIMULATED_GREEN_API_H
#define SIMULATED_GREEN_API_H

#include "libcuda/cuda_api.h"

typedef struct green_context *CUgreenCtx;
typedef struct resource_description *CUdevResourceDesc;

enum { CU_DEV_RESOURCE_TYPE_SM = 1 };
enum { CU_GREEN_CTX_DEFAULT_STREAM = 1 };

typedef struct {
    int type;
    unsigned char padding[92];
    union {
        struct {
            unsigned count, least, alignment;
        } multiprocessors;
        unsigned char whole[48];
    } of;
} CUdevResource;
_Static_assert(sizeof(CUdevResource) == 144, "as in cuda.h");

CUDA_EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type);
CUDA_EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources,
                                               unsigned count);
CUDA_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc description, CUdevice device,
                                      unsigned flags);
CUDA_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx context);
CUDA_EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
CUDA_EXPORT CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned flags,
                                            int priority);

CUDA_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUDA_EXPORT CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context);
CUDA_EXPORT CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green);
CUDA_EXPORT CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *context, CUgreenCtx *green);
CUDA_EXPORT CUresult cuStreamGetDevice(CUstream stream, CUdevice *device);
CUDA_EXPORT CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice *device);

#endif
