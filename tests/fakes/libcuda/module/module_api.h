/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the driver API that loads code, and the limits of a context. See cuda_api.h.
 */
#ifndef SIMULATED_MODULE_API_H
#define SIMULATED_MODULE_API_H

#include "libcuda/cuda_api.h"

typedef struct module *CUlibrary;

CUDA_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *file);
CUDA_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, void *options,
                                        void **values);
CUDA_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image);
CUDA_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, void *options, void **values,
                                       unsigned count, void *library_options, void **library_values,
                                       unsigned library_count);
CUDA_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, void *options, void **values,
                                           unsigned count, void *library_options, void **library_values,
                                           unsigned library_count);
CUDA_EXPORT CUresult cuLibraryUnload(CUlibrary library);
CUDA_EXPORT CUresult cuLibraryGetKernel(CUfunction *kernel, CUlibrary library, const char *name);
CUDA_EXPORT CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library);
CUDA_EXPORT CUresult cuLibraryEnumerateKernels(CUfunction *kernels, unsigned room, CUlibrary library);
enum { CU_MODULE_EAGER_LOADING = 1, CU_MODULE_LAZY_LOADING = 2 };
CUDA_EXPORT CUresult cuModuleGetLoadingMode(int *mode);
CUDA_EXPORT CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module);
CUDA_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned room, CUmodule module);
CUDA_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library,
                                        const char *name);
CUDA_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUfunction kernel);
typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
} CUlaunchConfig;
_Static_assert(sizeof(CUlaunchConfig) == 56, "as in cuda.h");

CUDA_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                    unsigned block_x, unsigned block_y, unsigned block_z,
                                    unsigned shared_bytes, CUstream stream, void **parameters, void **extra);
CUDA_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned block_x, unsigned block_y,
                                         unsigned block_z, unsigned shared_bytes, CUstream stream,
                                         void **parameters, void **extra);
CUDA_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                               unsigned grid_z, unsigned block_x, unsigned block_y,
                                               unsigned block_z, unsigned shared_bytes, CUstream stream,
                                               void **parameters);
CUDA_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                                    unsigned block_z, unsigned shared_bytes, CUstream stream,
                                                    void **parameters);
CUDA_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *configuration, CUfunction function,
                                      void **parameters, void **extra);
CUDA_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *configuration, CUfunction function,
                                           void **parameters, void **extra);
CUDA_EXPORT CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                                  const CUlaunchConfig *configuration);
CUDA_EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*call)(void *), void *data);
CUDA_EXPORT CUresult cuLaunchHostFunc_ptsz(CUstream stream, void (*call)(void *), void *data);
CUDA_EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function);
CUDA_EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, CUfunction kernel, CUdevice device);
CUDA_EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size);
CUDA_EXPORT CUresult cuKernelGetParamInfo(CUfunction kernel, size_t index, size_t *offset, size_t *size);
CUDA_EXPORT CUresult cuFuncLoad(CUfunction function);
CUDA_EXPORT CUresult cuCtxGetLimit(size_t *value, int limit);
CUDA_EXPORT CUresult cuCtxSetLimit(int limit, size_t value);

#endif
