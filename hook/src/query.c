/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program is told about memory: the container's limit in place of the card's size.
 */
#include "account.h"
#include "channel.h"
#include "device.h"
#include "pool.h"
#include "session.h"

static uint64_t smaller(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

/* Puts the container's figures in place of the driver's; either pointer may be NULL, as for the driver. */
static CUresult limit(size_t *unused, size_t *total) {
    CUcontext context;
    int device;
    if (!session_ready()) return CUDA_ERROR_SYSTEM_NOT_READY;
    if (device_current(&context, &device) != CUDA_SUCCESS) return CUDA_SUCCESS;
    if (device < 0) {
        if (unused) *unused = 0; /* nothing can be had there; the size of the card is no secret */
        return CUDA_SUCCESS;
    }
    pool_reclaim(device, false);
    struct channel_answer answer;
    struct convgpu_usage usage = {.limit = account_limit((uint32_t)device),
                                  .used = account_used((uint32_t)device)};
    if (channel_query((uint32_t)device, &answer) == CHANNEL_ANSWERED) usage = answer.usage;
    uint64_t most = total ? smaller(usage.limit, *total) : usage.limit;
    if (total) *total = most;
    if (unused) *unused = usage.used < most ? most - usage.used : 0;
    return CUDA_SUCCESS;
}

CUresult hooked_cuMemGetInfo_v2(size_t *unused, size_t *total) {
    CUresult result = DRIVER(cuMemGetInfo_v2, unused, total);
    return result != CUDA_SUCCESS || (!unused && !total) ? result : limit(unused, total);
}

/* The form of CUDA 2 cannot say more than 4 GiB. */
CUresult hooked_cuMemGetInfo(unsigned *unused, unsigned *total) {
    size_t wide_unused = 0, wide_total = UINT64_MAX;
    CUresult result = DRIVER(cuMemGetInfo, unused, total);
    if (result != CUDA_SUCCESS || (!unused && !total)) return result;
    result = limit(&wide_unused, &wide_total);
    if (result != CUDA_SUCCESS) return result;
    if (unused) *unused = (unsigned)smaller(wide_unused, *unused);
    if (total) *total = (unsigned)smaller(wide_total, *total);
    return CUDA_SUCCESS;
}

CUresult hooked_cuDeviceTotalMem_v2(size_t *total, CUdevice ordinal) {
    CUresult result = DRIVER(cuDeviceTotalMem_v2, total, ordinal);
    if (result != CUDA_SUCCESS || !total) return result;
    if (!session_ready()) return CUDA_ERROR_SYSTEM_NOT_READY;
    int device = device_of_ordinal(ordinal);
    if (device >= 0) *total = smaller(account_limit((uint32_t)device), *total);
    return CUDA_SUCCESS;
}

CUresult hooked_cuDeviceTotalMem(unsigned *total, CUdevice ordinal) {
    CUresult result = DRIVER(cuDeviceTotalMem, total, ordinal);
    if (result != CUDA_SUCCESS || !total) return result;
    if (!session_ready()) return CUDA_ERROR_SYSTEM_NOT_READY;
    int device = device_of_ordinal(ordinal);
    if (device >= 0) *total = (unsigned)smaller(account_limit((uint32_t)device), *total);
    return CUDA_SUCCESS;
}
