/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts: parts of a device's multiprocessors in its primary context. A green context holds a
 * reference to its device's primary context, which may begin and end with it. So around the driver's call the
 * primary context is held by a reference of ours, and it is that one whose taking and giving is charged
 * (context.c). What it grows by, some MiB for the green one, is measured.
 *
 * The handle is a context's as well (driver 580: cuStreamGetCtx of its streams, and cuCtxFromGreenCtx, name
 * it): memory, stacks and heaps that are made in it are the primary context's.
 */
#include "accounting/allocations.h"
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "tables/registry.h"

static struct allocations greens = ALLOCATIONS_INITIALIZER; /* by handle; `value` is the ordinal */

/* The primary context is held. */
static CUresult make_green(CUgreenCtx *made, void *description, CUdevice ordinal, unsigned flags,
                           CUcontext primary) {
    struct allocation replaced;
    int device = device_of_ordinal(ordinal);
    CUresult result = growth_charge_owed(device, "cuGreenCtxCreate");
    if (result == CUDA_SUCCESS) result = DRIVER(cuGreenCtxCreate, made, description, ordinal, flags);
    if (result != CUDA_SUCCESS) return result;
    struct allocation entry = {.address = (uint64_t)(uintptr_t)*made, .value = (uint64_t)ordinal};
    bool entered = allocations_insert(&greens, entry, &replaced);
    device_set_owner((CUcontext)*made, primary);
    if (entered && growth_charge_now(device, "cuGreenCtxCreate") == CUDA_SUCCESS) return result;
    (void)allocations_remove(&greens, entry.address, &replaced);
    device_forget_owner((CUcontext)*made);
    DRIVER(cuGreenCtxDestroy, *made);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hooked_cuGreenCtxCreate(CUgreenCtx *green, void *description, CUdevice ordinal, unsigned flags) {
    CUcontext primary;
    CUgreenCtx made = NULL;
    CUresult result = hooked_cuDevicePrimaryCtxRetain(&primary, ordinal);
    if (result != CUDA_SUCCESS) return result;
    result = make_green(&made, description, ordinal, flags, primary);
    (void)hooked_cuDevicePrimaryCtxRelease_v2(ordinal); /* the green context has its own reference now */
    if (result == CUDA_SUCCESS) *green = made;
    return result;
}

/* Forgotten before: the driver may give the handle again before its call returns. */
CUresult hooked_cuGreenCtxDestroy(CUgreenCtx green) {
    struct allocation entry, replaced;
    CUcontext primary;
    if (!allocations_remove(&greens, (uint64_t)(uintptr_t)green, &entry))
        return DRIVER(cuGreenCtxDestroy, green);
    CUdevice ordinal = (CUdevice)entry.value;
    bool held = DRIVER(cuDevicePrimaryCtxRetain, &primary, ordinal) == CUDA_SUCCESS;
    device_forget_owner((CUcontext)green);
    CUresult result = DRIVER(cuGreenCtxDestroy, green);
    if (result != CUDA_SUCCESS) {
        (void)allocations_insert(&greens, entry, &replaced);
        if (held) device_set_owner((CUcontext)green, primary);
    }
    if (held) (void)hooked_cuDevicePrimaryCtxRelease_v2(ordinal);
    return result;
}

/* The same handle, as it is today; a driver that gives another one is answered for. */
CUresult hooked_cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    CUcontext primary;
    struct allocation entry;
    CUresult result = DRIVER(cuCtxFromGreenCtx, context, green);
    bool other = result == CUDA_SUCCESS && (void *)*context != (void *)green;
    if (!other || !allocations_find(&greens, (uint64_t)(uintptr_t)green, &entry)) return result;
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
