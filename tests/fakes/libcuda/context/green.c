/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts: each holds a reference to its device's primary context, which it makes grow, and is named
 * by one handle as a context too. And what a stream belongs to, as that may be a green context. As seen on an
 * H200 with driver 580.
 */
#include "libcuda/context/green_api.h"
#include "libcuda/memory/pool.h"

#define MULTIPROCESSORS 132u                /* as attribute 16 says */
#define GREEN_SIZE      (UINT64_C(2) << 20) /* stays in the primary context */

struct resource_description {
    struct handle handle;
};

struct green_context {
    struct handle handle;
    CUdevice device;
};

struct context *green_primary(const struct context *handle) {
    const struct green_context *green = handle_find(HANDLE_GREEN, handle);
    return green == NULL ? (struct context *)handle : &driver.primary[green->device];
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (resource == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (type != CU_DEV_RESOURCE_TYPE_SM) return driver_leave(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    *resource = (CUdevResource){.type = type, .of.multiprocessors = {MULTIPROCESSORS, 8, 8}};
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources, unsigned count) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (description == NULL || resources == NULL || count == 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
            return driver_leave(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    *description = handle_new(HANDLE_RESOURCES, sizeof **description);
    return driver_leave(*description == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

static CUresult check_creation(CUdevResourceDesc description, CUdevice device, unsigned flags) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    bool valid = handle_find(HANDLE_RESOURCES, description) != NULL && flags == CU_GREEN_CTX_DEFAULT_STREAM;
    return driver_leave(valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGreenCtxCreate(CUgreenCtx *handle, CUdevResourceDesc description, CUdevice device,
                          unsigned flags) {
    CUresult result = check_creation(description, device, flags);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUcontext primary;
    result = cuDevicePrimaryCtxRetain(&primary, device);
    if (result != CUDA_SUCCESS) return result;
    result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct green_context *green = handle_new(HANDLE_GREEN, sizeof *green);
    if (green == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (!device_take(device, GREEN_SIZE)) {
        handle_delete(green);
        driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        (void)cuDevicePrimaryCtxRelease_v2(device);
        return refuse_memory();
    }
    driver.primary[device].grown += GREEN_SIZE;
    green->device = device;
    *handle = green;
    return driver_leave(CUDA_SUCCESS);
}

/* driver_enter, and finds the green context. */
static CUresult enter_green(CUgreenCtx handle, struct green_context **green) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *green = handle_find(HANDLE_GREEN, handle);
    return *green != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
    struct green_context *green = NULL;
    CUresult result = enter_green(handle, &green);
    if (result != CUDA_SUCCESS) return result;
    CUdevice device = green->device;
    handle_delete(green);
    driver_leave(CUDA_SUCCESS);
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx handle) {
    struct green_context *green = NULL;
    CUresult result = enter_green(handle, &green);
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *context = (CUcontext)green; /* the same handle, as on driver 580 */
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx handle, unsigned flags, int priority) {
    (void)priority;
    struct green_context *green = NULL;
    CUresult result = enter_green(handle, &green);
    if (result != CUDA_SUCCESS) return result;
    if (stream == NULL || flags != 1)
        return driver_leave(CUDA_ERROR_INVALID_VALUE); /* CU_STREAM_NON_BLOCKING */
    struct stream *new = stream_new(&driver.primary[green->device]);
    if (new == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    new->green = green;
    new->blocking = true;
    *stream = new;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green) {
    struct context *found = NULL;
    CUresult result = driver_enter_stream(handle, &found);
    if (result != CUDA_SUCCESS) return result;
    const struct stream *stream = handle_find(HANDLE_STREAM, handle);
    struct green_context *owner = stream == NULL ? NULL : stream->green;
    if (context == NULL || (green == NULL && owner != NULL)) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *context = found;
    if (green != NULL) *green = owner;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *context, CUgreenCtx *green) {
    return cuStreamGetCtx_v2(stream == NULL ? CU_STREAM_PER_THREAD : stream, context, green);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    struct context *found = NULL;
    CUresult result = driver_enter_stream(stream, &found);
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct stream *own = handle_find(HANDLE_STREAM, stream);
    *context = own != NULL && own->green != NULL ? (CUcontext)own->green : found;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context) {
    return cuStreamGetCtx(stream == NULL ? CU_STREAM_PER_THREAD : stream, context);
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(stream, &context);
    if (result != CUDA_SUCCESS) return result;
    if (device == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice *device) {
    return cuStreamGetDevice(stream == NULL ? CU_STREAM_PER_THREAD : stream, device);
}
