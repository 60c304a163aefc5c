/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and launches, as far as a program needs them to go on: a launch does nothing.
 */
#include "driver.h"

struct function {
    char unused;
};

struct module {
    struct function function;
};

/* All modules are alike, so one is enough. */
static struct module the_module;

static CUresult check_context(bool valid, CUresult otherwise) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    return driver_leave(valid ? CUDA_SUCCESS : otherwise);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CUresult result = check_context(module != NULL && image != NULL, CUDA_ERROR_INVALID_VALUE);
    if (result == CUDA_SUCCESS) *module = &the_module;
    return result;
}

CUresult cuModuleUnload(CUmodule module) {
    return check_context(module == &the_module, CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUresult result = check_context(function != NULL && name != NULL, CUDA_ERROR_INVALID_VALUE);
    if (result != CUDA_SUCCESS) return result;
    if (module != &the_module) return CUDA_ERROR_INVALID_HANDLE;
    *function = &the_module.function;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **parameters, void **extra) {
    (void)shared_bytes, (void)stream, (void)parameters, (void)extra;
    if (atomic_load_explicit(&driver.phase, memory_order_acquire) != DRIVER_READY) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    /* No lock: a launch changes nothing, and a benchmark of launches should not measure one. */
    if (context_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    bool empty = grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0;
    return empty ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                             CUstream stream, void **parameters, void **extra) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                          parameters, extra);
}
