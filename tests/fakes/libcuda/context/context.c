/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: each living one takes context_size bytes of its device, and frees its allocations when it ends.
 */
#include <stdlib.h>
#include <string.h>

#include "libcuda/driver.h"
#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"
#include "libcuda/memory/tables.h"
#include "libcuda/module/module.h"
#include "libcuda/work/host.h"
#include "libcuda/work/work.h"

#define STACK_MAX    64
#define FIRST_QUEUES (UINT64_C(4) << 20) /* in what the context takes */

/* `handle`: what the program made current, which may name a green context. */
static _Thread_local struct {
    struct context *context;
    CUcontext handle;
} stack[STACK_MAX];
static _Thread_local unsigned depth;
static uint64_t last_life;

struct context *context_current(void) {
    return depth == 0 ? NULL : stack[depth - 1].context;
}

bool context_is_green(void) {
    return depth > 0 && stack[depth - 1].handle != stack[depth - 1].context;
}

/* driver.mutex held. */
static bool is_context(const struct context *handle) {
    for (int device = 0; device < driver.device_count; device++) {
        if (handle == &driver.primary[device]) return true;
    }
    for (const struct context *context = driver.contexts; context != NULL; context = context->next) {
        if (handle == context) return true;
    }
    return false;
}

/* Whether the handle can be made current. driver.mutex held. A primary context can, even while it is not
 * active: only the calls that need it fail. */
static CUresult check_context(const struct context *handle) {
    handle = green_primary(handle);
    if (!is_context(handle)) return CUDA_ERROR_INVALID_CONTEXT;
    return handle->alive || handle->primary ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* driver.mutex held. */
static bool has_context(CUdevice device) {
    if (driver.primary[device].alive) return true;
    for (const struct context *context = driver.contexts; context != NULL; context = context->next) {
        if (context->alive && context->device == device) return true;
    }
    return false;
}

/* Takes or gives what the process has of a device beside its contexts. driver.mutex held. */
static bool take_process(CUdevice device) {
    uint64_t size = driver.state.configuration.process_size;
    if (size == 0 || has_context(device)) return true;
    if (!device_take(device, size)) return false;
    state_unlist(&driver.state, driver.row[device], (int64_t)size);
    return true;
}

static void give_process(CUdevice device) {
    uint64_t size = driver.state.configuration.process_size;
    if (size == 0 || has_context(device)) return;
    state_unlist(&driver.state, driver.row[device], -(int64_t)size);
    device_give(device, size);
}

/* driver.mutex held. */
static bool start(struct context *context) {
    if (!take_process(context->device)) return false;
    context->alive = device_take(context->device, driver.state.configuration.context_size);
    if (!context->alive) give_process(context->device);
    context->error = CUDA_SUCCESS;
    memset(context->limit, 0, sizeof context->limit);
    context->stack = 0;
    context->heap_taken = context->printf_taken = false;
    context->pending = context->calls = 0;
    context->graphs = (struct store){0};
    context->queues = (struct store){.size = FIRST_QUEUES};
    context->life = ++last_life;
    context->slabs = (struct arena){.device = context->device, .step = SLAB};
    return context->alive;
}

/* driver.mutex held. */
static void end(struct context *context) {
    if (!context->alive) return;
    work_drop(context);
    stream_end_own(context);
    memory_free_all(context);
    array_end_all(context);
    host_end_all(context);
    module_end_all(context);
    device_give(context->device, driver.state.configuration.context_size);
    context->alive = false;
    give_process(context->device);
    if (has_context(context->device)) return;
    tables_end_all(context->device);
    pool_end_all(context->device);
    graph_end_all(context->device);
}

static CUresult push(CUcontext handle) {
    if (depth == STACK_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth].context = green_primary(handle);
    stack[depth++].handle = handle;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct context *primary = &driver.primary[device];
    if (!primary->alive && !start(primary)) {
        driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        return refuse_memory();
    }
    primary->references++;
    *context = primary;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    struct context *primary = &driver.primary[device];
    if (primary->references == 0) return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (--primary->references == 0) end(primary);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    end(&driver.primary[device]); /* its references stay: who retained it still has to release it */
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (flags == NULL || active == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = driver.primary[device].flags;
    *active = driver.primary[device].alive;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    driver.primary[device].flags = flags;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (driver.primary[device].alive) return driver_leave(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    driver.primary[device].flags = flags;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxCreate_v2(CUcontext *handle, unsigned flags, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct context *context = calloc(1, sizeof *context);
    if (context == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    context->device = device;
    context->flags = flags;
    if (!start(context)) {
        free(context);
        driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        return refuse_memory();
    }
    context->next = driver.contexts;
    driver.contexts = context;
    *handle = context;
    return driver_leave(push(context));
}

CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
}

/* As if OpenGL were there. */
CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
}

/* As if VDPAU were there, with one device. */
CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, uint32_t shown,
                             void *lookup) {
    return shown == 7 && lookup ? cuCtxCreate_v2(context, flags, device) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned flags, CUdevice device, uint32_t shown, void *lookup) {
    return cuVDPAUCtxCreate_v2(context, flags, device, shown, lookup);
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
    if (affinity != NULL || count != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device) {
    if (parameters != NULL) return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    /* A primary context is released, not destroyed. */
    if (!is_context(context) || context->primary) return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!context->alive) return driver_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    end(context);
    if (context_current() == context) depth--;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxDestroy(CUcontext context) {
    return cuCtxDestroy_v2(context);
}

CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL || flags != 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *context = context_current();
    if (*context == NULL) return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!(*context)->primary) (*context)->references++;
    return driver_leave(CUDA_SUCCESS);
}

/* The last one ends it; a primary one goes on (driver 580). */
CUresult cuCtxDetach(CUcontext context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (!is_context(context) || context_current() != context) return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (context->primary) return driver_leave(CUDA_SUCCESS);
    if (context->references > 0) {
        context->references--;
        return driver_leave(CUDA_SUCCESS);
    }
    end(context);
    depth--;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *context = depth == 0 ? NULL : stack[depth - 1].handle;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    result = context == NULL ? CUDA_SUCCESS : check_context(context);
    if (result != CUDA_SUCCESS) return driver_leave(result);
    if (depth > 0) depth--; /* replaces the top of the stack */
    return driver_leave(context == NULL ? CUDA_SUCCESS : push(context));
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (context == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    result = check_context(context);
    return driver_leave(result != CUDA_SUCCESS ? result : push(context));
}

CUresult cuCtxPushCurrent(CUcontext context) {
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (depth == 0) return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (context != NULL) *context = stack[depth].handle;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    return cuCtxPopCurrent_v2(context);
}

/* Takes driver.mutex if `context`, or without one the current context, is alive. */
static CUresult enter_given(struct context **context) {
    if (*context == NULL) return driver_enter_context(context);
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *context = green_primary(*context);
    if (!is_context(*context)) return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!(*context)->alive) return driver_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return (*context)->error == CUDA_SUCCESS ? CUDA_SUCCESS : driver_leave((*context)->error);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    CUresult result = enter_given(&context);
    if (result != CUDA_SUCCESS) return result;
    if (device == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device) {
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    CUresult result = enter_given(&context);
    if (result != CUDA_SUCCESS) return result;
    if (capture_breaks(context)) return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    result = work_wait_all(context);
    pool_synchronise(context->device, (struct until){.order = UINT64_MAX});
    return driver_leave(result);
}

CUresult cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}
