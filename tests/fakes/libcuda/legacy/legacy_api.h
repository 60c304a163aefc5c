/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms of CUDA 2 of the CUDA driver's binary interface: sizes and addresses of 32 bits. And the two that
 * came after them for the range of an address.
 */
#ifndef SIMULATED_LEGACY_API_H
#define SIMULATED_LEGACY_API_H

#include "libcuda/cuda_api.h"

typedef unsigned CUdeviceptr_v1;

CUDA_EXPORT CUresult cuMemGetInfo(unsigned *free, unsigned *total);
CUDA_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned size);
CUDA_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned *pitch, unsigned width,
                                     unsigned height, unsigned element_size);
CUDA_EXPORT CUresult cuMemFree(CUdeviceptr_v1 address);
CUDA_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned *size, CUdeviceptr_v1 address);
CUDA_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address);

#endif
