/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts: parts of a device's multiprocessors in its primary context. A green context takes no
 * context's memory of its own: it holds a reference to its device's primary context, which may begin and end
 * with it. So around the driver's call the primary context is held by a reference of ours, and it is that one
 * whose taking and giving is charged (context.c).
 */
#include "accounting/allocations.h"
#include "accounting/device.h"
#include "tables/registry.h"

static struct allocations greens = ALLOCATIONS_INITIALIZER; /* by handle; `value` is the ordinal */

CUresult hooked_cuGreenCtxCreate(CUgreenCtx *green, void *description, CUdevice ordinal, unsigned flags) {
    CUcontext primary;
    CUgreenCtx made = NULL;
    struct allocation replaced;
    CUresult result = hooked_cuDevicePrimaryCtxRetain(&primary, ordinal);
    if (result != CUDA_SUCCESS) return result;
    result = DRIVER(cuGreenCtxCreate, &made, description, ordinal, flags);
    struct allocation entry = {.address = (uint64_t)(uintptr_t)made, .value = (uint64_t)ordinal};
    if (result == CUDA_SUCCESS && !allocations_insert(&greens, entry, &replaced)) {
        DRIVER(cuGreenCtxDestroy, made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    (void)hooked_cuDevicePrimaryCtxRelease_v2(ordinal); /* the green context has its own reference now */
    if (result == CUDA_SUCCESS) *green = made;
    return result;
}

CUresult hooked_cuGreenCtxDestroy(CUgreenCtx green) {
    struct allocation entry, replaced;
    CUcontext primary;
    if (!allocations_remove(&greens, (uint64_t)(uintptr_t)green, &entry))
        return DRIVER(cuGreenCtxDestroy, green);
    CUdevice ordinal = (CUdevice)entry.value;
    bool held = DRIVER(cuDevicePrimaryCtxRetain, &primary, ordinal) == CUDA_SUCCESS;
    CUresult result = DRIVER(cuGreenCtxDestroy, green);
    if (result != CUDA_SUCCESS) (void)allocations_insert(&greens, entry, &replaced);
    if (held) (void)hooked_cuDevicePrimaryCtxRelease_v2(ordinal);
    return result;
}

/* Memory that is made in such a context lives and dies with the primary one. */
CUresult hooked_cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    CUcontext primary;
    struct allocation entry;
    CUresult result = DRIVER(cuCtxFromGreenCtx, context, green);
    if (result != CUDA_SUCCESS || !allocations_find(&greens, (uint64_t)(uintptr_t)green, &entry))
        return result;
    CUdevice ordinal = (CUdevice)entry.value;
    if (DRIVER(cuDevicePrimaryCtxRetain, &primary, ordinal) != CUDA_SUCCESS) return result;
    (void)hooked_cuDevicePrimaryCtxRelease_v2(ordinal);
    device_set_owner(*context, primary);
    return result;
}

static void green_context_reset(void) {
    allocations_reset(&greens);
}
REGISTER_FAMILY(green_context, .reset = green_context_reset);
