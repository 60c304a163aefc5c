/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms of CUDA 2. Their memory gets addresses below 4 GiB, so that 32 bits can hold them.
 */
#include "libcuda/legacy/legacy_api.h"

#include <limits.h>

#include "libcuda/driver.h"

#define LOW_FIRST (UINT64_C(256) << 20)
#define LOW_END   (UINT64_C(1) << 32)

static struct blocks low = {.next_address = LOW_FIRST}; /* only for its ranges of addresses */

static CUresult take_low(struct context *context, uint64_t size, CUdeviceptr_v1 *address) {
    uint64_t counted = blocks_counted(size);
    struct block *range = blocks_take_range(&low, counted);
    if (range == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = NULL;
    bool taken = range->address + counted <= LOW_END && device_take(context->device, counted);
    if (taken) block = blocks_add_at(&driver.blocks, range->address, size, context, &context->blocks);
    if (block == NULL) {
        if (taken) device_give(context->device, counted);
        blocks_give_range(&low, range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->counted = counted;
    block->low_range = range;
    *address = (CUdeviceptr_v1)range->address;
    return CUDA_SUCCESS;
}

void legacy_give_range(struct block *range) {
    blocks_give_range(&low, range);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned size) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || size == 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    result = take_low(context, size, address);
    driver_leave(result);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? refuse_memory() : result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned *pitch, unsigned width, unsigned height,
                         unsigned element_size) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    bool element = element_size == 4 || element_size == 8 || element_size == 16;
    if (address == NULL || pitch == NULL || width == 0 || height == 0 || !element) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    uint64_t row = ((uint64_t)width + MEMORY_PITCH - 1) / MEMORY_PITCH * MEMORY_PITCH;
    uint64_t size = row * height;
    result = size > UINT_MAX ? CUDA_ERROR_OUT_OF_MEMORY : take_low(context, size, address);
    if (result == CUDA_SUCCESS) *pitch = (unsigned)row;
    driver_leave(result);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? refuse_memory() : result;
}

CUresult cuMemFree(CUdeviceptr_v1 address) {
    return cuMemFree_v2(address);
}

static unsigned at_most_32_bits(size_t value) {
    return value > UINT_MAX ? UINT_MAX : (unsigned)value;
}

CUresult cuMemGetInfo(unsigned *free, unsigned *total) {
    size_t now = 0, all = 0;
    CUresult result = cuMemGetInfo_v2(&now, &all);
    if (result != CUDA_SUCCESS) return result;
    if (free != NULL) *free = at_most_32_bits(now);
    if (total != NULL) *total = at_most_32_bits(all);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned *size, CUdeviceptr_v1 address) {
    CUdeviceptr found = 0;
    size_t bytes = 0;
    CUresult result = cuMemGetAddressRange_v2(&found, &bytes, address);
    if (result != CUDA_SUCCESS) return result;
    if (base != NULL) *base = (CUdeviceptr_v1)found;
    if (size != NULL) *size = at_most_32_bits(bytes);
    return CUDA_SUCCESS;
}
