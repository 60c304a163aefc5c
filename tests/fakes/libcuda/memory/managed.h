/* SPDX-License-Identifier: Apache-2.0
 *
 * Managed memory: pages of 2 MiB that lie on the device or on the host. It may be more than the device has.
 * Pages are on the device from the start, as if they were touched there at once, as long as it has room;
 * prefetches move them, and other allocations of the process push them out, as on a card.
 */
#ifndef SIMULATED_MANAGED_H
#define SIMULATED_MANAGED_H

#include "libcuda/context/stream_api.h"
#include "libcuda/cuda_api.h"
#include "libcuda/memory/blocks.h"

/* What of a block is on the device, in bytes. driver.mutex held, here and below. */
uint64_t managed_resident(const struct block *block);

/* Gives a new block its pages. False: the process has no memory left. */
bool managed_begin(struct block *block, CUdevice device);

/* Takes the pages of a block that ends off the device. */
void managed_end(struct block *block, CUdevice device);

/* Takes pages of the process off the device, `size` bytes if there are as many. */
void managed_push_out(CUdevice device, uint64_t size);

CUDA_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice device, CUstream stream);
CUDA_EXPORT CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t count, CUdevice device,
                                             CUstream stream);
CUDA_EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation location,
                                           unsigned flags, CUstream stream);
CUDA_EXPORT CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t count, CUmemLocation location,
                                                unsigned flags, CUstream stream);
CUDA_EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t count, int advice, CUdevice device);
CUDA_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t count, int advice, CUmemLocation location);
CUDA_EXPORT CUresult cuMemRangeGetAttribute(void *data, size_t size, int attribute, CUdeviceptr address,
                                            size_t count);

#endif
