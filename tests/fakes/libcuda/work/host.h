/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the host that copies reach at full speed.
 */
#ifndef SIMULATED_HOST_H
#define SIMULATED_HOST_H

#include <stdbool.h>

#include "libcuda/cuda_api.h"

/* Whether the address lies in allocated or registered memory of the host. driver.mutex held. */
bool host_is_registered(uint64_t address);

/* The context ends, and with it what was pinned while it was current. driver.mutex held. */
struct context;
void host_end_all(struct context *context);

CUDA_EXPORT CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags);
CUDA_EXPORT CUresult cuMemAllocHost_v2(void **address, size_t size);
CUDA_EXPORT CUresult cuMemFreeHost(void *address);
CUDA_EXPORT CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags);
CUDA_EXPORT CUresult cuMemHostUnregister(void *address);
CUDA_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *address, unsigned flags);
CUDA_EXPORT CUresult cuMemHostGetFlags(unsigned *flags, void *address);

#endif
