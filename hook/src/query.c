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

CUresult hooked_cuMemGetInfo_v2(size_t *unused, size_t *total) {
    CUcontext context;
    int device;
    CUresult result = DRIVER(cuMemGetInfo_v2, unused, total);
    if (result != CUDA_SUCCESS || (!unused && !total)) return result; /* the driver takes NULL for either */
    if (!session_ready()) return CUDA_ERROR_SYSTEM_NOT_READY;
    if (device_current(&context, &device) != CUDA_SUCCESS) return result;
    if (device < 0) {
        if (unused) *unused = 0; /* nothing can be had there; the size of the card is no secret */
        return CUDA_SUCCESS;
    }
    pool_reclaim(device, false);
    struct channel_answer answer;
    struct convgpu_usage usage = {.limit = account_limit((uint32_t)device),
                                  .used = account_used((uint32_t)device)};
    if (channel_query((uint32_t)device, &answer) == CHANNEL_ANSWERED) usage = answer.usage;
    uint64_t limit = total ? smaller(usage.limit, *total) : usage.limit;
    if (total) *total = limit;
    if (unused) *unused = usage.used < limit ? limit - usage.used : 0;
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
