/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches: the first one of a function loads its code; what it does beside that is in work/operation.h.
 */
#include <string.h>

#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"
#include "libcuda/module/module.h"
#include "libcuda/work/work.h"

#define BUFFER_POINTER ((void *)1) /* CU_LAUNCH_PARAM_BUFFER_POINTER */

#define DECLARE_NAME(kernel, name) name,
static const char *const names[] = {KERNELS(DECLARE_NAME)};

static const unsigned arguments[] = {
    [KERNEL_NONE] = 0, [KERNEL_LAST] = 1,  [KERNEL_FILL] = 3, [KERNEL_CHECK] = 4,
    [KERNEL_ADD] = 3,  [KERNEL_UNTIL] = 2, [KERNEL_MEET] = 2,
};

enum kernel kernel_named(const char *name) {
    for (unsigned kernel = KERNEL_NONE + 1; kernel < KERNEL_COUNT; kernel++) {
        if (strcmp(names[kernel], name) == 0) return kernel;
    }
    return KERNEL_NONE;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    uint64_t one = function == NULL ? 0 : function->module->parameters;
    if (function == NULL || offset == NULL || index >= (one > 0 ? 1 : arguments[function->kernel]))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *offset = index * sizeof(uint64_t);
    if (size != NULL) *size = one > 0 ? one : sizeof(uint64_t);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetParamInfo(CUfunction kernel, size_t index, size_t *offset, size_t *size) {
    CUfunction loaded = NULL;
    CUresult result = cuKernelGetFunction(&loaded, kernel); /* it loads what is not there */
    return result == CUDA_SUCCESS ? cuFuncGetParamInfo(loaded, index, offset, size) : result;
}

/* The arguments, one by one or packed. Returns false if there are none where some are needed. */
static bool read_arguments(struct operation *operation, void **parameters, void **extra) {
    unsigned count = arguments[operation->kernel];
    bool packed = parameters == NULL && extra != NULL && extra[0] == BUFFER_POINTER;
    if (count == 0) return true;
    if (packed) memcpy(operation->argument, extra[1], count * sizeof *operation->argument);
    for (unsigned i = 0; !packed && parameters != NULL && i < count; i++) {
        memcpy(&operation->argument[i], parameters[i], sizeof *operation->argument);
    }
    if (operation->kernel == KERNEL_LAST) operation->lasts += operation->argument[0];
    return packed || parameters != NULL;
}

/* A module's function is launched in its own context only; a library's in every one. */
static bool is_of_another(const struct function *function, const struct context *context) {
    return function->module->handle.kind == HANDLE_MODULE && function->module->context != context;
}

static CUresult submit(const struct function *function, CUstream stream, void **parameters, void **extra) {
    struct operation operation = {.kind = OPERATION_KERNEL,
                                  .kernel = function->kernel,
                                  .lasts = function->module->lasts,
                                  .module = function->module};
    struct lane lane;
    CUresult result = work_enter(stream, false, &lane);
    if (result != CUDA_SUCCESS) return result;
    if (is_of_another(function, lane.context)) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!read_arguments(&operation, parameters, extra)) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(work_submit(&lane, &operation, NULL));
}

static CUresult launch(struct function *function, bool empty, CUstream stream, bool per_thread,
                       void **parameters, void **extra) {
    if (atomic_load_explicit(&driver.phase, memory_order_acquire) != DRIVER_READY) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (context_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (per_thread && stream == NULL) stream = CU_STREAM_PER_THREAD;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (empty) return CUDA_ERROR_INVALID_VALUE;
    struct module *module = function->module;
    if ((uintptr_t)stream <= 2 && is_of_another(function, context_current()))
        return CUDA_ERROR_INVALID_HANDLE;
    if (atomic_load_explicit(&module->due, memory_order_relaxed)) {
        CUresult result = module_launch(function, stream);
        if (result != CUDA_SUCCESS) return result;
    }
    /* No lock for a kernel that does nothing in no time: a benchmark of launches should not measure one. */
    bool nothing = function->kernel == KERNEL_NONE && module->lasts == 0;
    bool there = stream != CU_STREAM_PER_THREAD || stream_own_is_known(context_current());
    if (nothing && there && !driver_is_stopped() && !capture_any()) return context_current()->error;
    return submit(function, stream, parameters, extra);
}

#define EMPTY (grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0)

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **parameters, void **extra) {
    (void)shared_bytes;
    return launch(function, EMPTY, stream, false, parameters, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                             CUstream stream, void **parameters, void **extra) {
    (void)shared_bytes;
    return launch(function, EMPTY, stream, true, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z,
                                   unsigned shared_bytes, CUstream stream, void **parameters) {
    (void)shared_bytes;
    return launch(function, EMPTY, stream, false, parameters, NULL);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                        unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                        unsigned shared_bytes, CUstream stream, void **parameters) {
    (void)shared_bytes;
    return launch(function, EMPTY, stream, true, parameters, NULL);
}

static CUresult launch_configured(const CUlaunchConfig *c, CUfunction function, bool per_thread,
                                  void **parameters, void **extra) {
    if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
    bool empty = c->grid[0] == 0 || c->grid[1] == 0 || c->grid[2] == 0 || c->block[0] == 0 ||
                 c->block[1] == 0 || c->block[2] == 0;
    return launch(function, empty, c->stream, per_thread, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *configuration, CUfunction function, void **parameters,
                          void **extra) {
    return launch_configured(configuration, function, false, parameters, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *configuration, CUfunction function, void **parameters,
                               void **extra) {
    return launch_configured(configuration, function, true, parameters, extra);
}

/* A question that makes the stream of its configuration, as on a card. */
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                      const CUlaunchConfig *configuration) {
    struct context *context = NULL;
    (void)function;
    if (clusters == NULL || configuration == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter_stream(configuration->stream, &context);
    if (result != CUDA_SUCCESS) return result;
    *clusters = 1;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult call_host(CUstream stream, bool per_thread, void (*call)(void *), void *data) {
    const struct operation operation = {.kind = OPERATION_HOST, .call = call, .data = data};
    struct lane lane;
    CUresult result = work_enter(stream, per_thread, &lane);
    if (result != CUDA_SUCCESS) return result;
    if (call == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(work_submit(&lane, &operation, NULL));
}

CUresult cuLaunchHostFunc(CUstream stream, void (*call)(void *), void *data) {
    return call_host(stream, false, call, data);
}

CUresult cuLaunchHostFunc_ptsz(CUstream stream, void (*call)(void *), void *data) {
    return call_host(stream, true, call, data);
}
