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
CUDA_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library,
                                        const char *name);
CUDA_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUfunction kernel);
CUDA_EXPORT CUresult cuCtxGetLimit(size_t *value, int limit);
CUDA_EXPORT CUresult cuCtxSetLimit(int limit, size_t value);

#endif
