/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the CUDA driver's binary interface that the simulated driver offers: types, numbers and
 * prototypes as documented for the driver API. tests/fakes builds without a CUDA toolkit.
 */
#ifndef SIMULATED_CUDA_API_H
#define SIMULATED_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_EXPORT __attribute__((visibility("default")))

/* X(name, number, text of cuGetErrorString). */
#define CUDA_RESULTS(X)                                                                                      \
    X(CUDA_SUCCESS, 0, "no error")                                                                           \
    X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                                       \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                                          \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                                 \
    X(CUDA_ERROR_DEINITIALIZED, 4, "driver shutting down")                                                   \
    X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                                       \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                              \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                                       \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                                             \
    X(CUDA_ERROR_MAP_FAILED, 205, "mapping of buffer object failed")                                         \
    X(CUDA_ERROR_UNSUPPORTED_LIMIT, 215, "limit is not supported on this architecture")                      \
    X(CUDA_ERROR_FILE_NOT_FOUND, 301, "file not found")                                                      \
    X(CUDA_ERROR_OPERATING_SYSTEM, 304, "OS call failed or operation not supported on this OS")              \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                                             \
    X(CUDA_ERROR_ILLEGAL_STATE, 401, "the operation cannot be performed in the present state")               \
    X(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                                                   \
    X(CUDA_ERROR_NOT_READY, 600, "device not ready")                                                         \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                           \
    X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708, "cannot set while device is active in this process")           \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed")                                          \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712,                                                        \
      "part or all of the requested memory range is already mapped")                                         \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713,                                                            \
      "pointer does not correspond to a registered memory region")                                           \
    X(CUDA_ERROR_NOT_PERMITTED, 800, "operation not permitted")                                              \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported")                                              \
    X(CUDA_ERROR_SYSTEM_NOT_READY, 802, "system not yet initialized")                                        \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "operation not permitted when stream is capturing")        \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901, "operation failed due to a previous error during capture") \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902,                                                                  \
      "operation would result in a merge of separate capture sequences")                                     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903, "capture was not ended in the same stream as it began")      \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905, "dependency created on uncaptured work in another stream")   \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910,                                                             \
      "the graph update was not performed because it included changes which violated constraints specific "  \
      "to instantiated graph update")                                                                        \
    X(CUDA_ERROR_INVALID_RESOURCE_TYPE, 914, "invalid resource type")                                        \
    X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

#define CUDA_DECLARE_RESULT(name, number, text) name = (number),
typedef enum { CUDA_RESULTS(CUDA_DECLARE_RESULT) } CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct {
    char bytes[16];
} CUuuid;

#define CUDA_DRIVER_VERSION 13000 /* SIMULATED_CUDA_VERSION; asserted in device.c */

#define CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM (UINT64_C(1) << 1)
#define CU_GET_PROC_ADDRESS_FLAGS                     UINT64_C(3)
typedef enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
} CUdriverProcAddressQueryResult;

CUDA_EXPORT CUresult cuInit(unsigned flags);
CUDA_EXPORT CUresult cuDriverGetVersion(int *version);
CUDA_EXPORT CUresult cuGetErrorName(CUresult error, const char **text);
CUDA_EXPORT CUresult cuGetErrorString(CUresult error, const char **text);
CUDA_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
CUDA_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                         CUdriverProcAddressQueryResult *status);

CUDA_EXPORT CUresult cuDeviceGetCount(int *count);
CUDA_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUDA_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUDA_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUDA_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUDA_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUDA_EXPORT CUresult cuDeviceTotalMem(unsigned *size, CUdevice device);
CUDA_EXPORT CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice device);

CUDA_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUDA_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUDA_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUDA_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUDA_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUDA_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUDA_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags);
CUDA_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags);

CUDA_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device);
CUDA_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUDA_EXPORT CUresult cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice device);
CUDA_EXPORT CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUDA_EXPORT CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned flags, CUdevice device, uint32_t shown,
                                      void *lookup);
CUDA_EXPORT CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, uint32_t shown,
                                         void *lookup);
CUDA_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags,
                                    CUdevice device);
CUDA_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device);
CUDA_EXPORT CUresult cuCtxDestroy(CUcontext context);
CUDA_EXPORT CUresult cuCtxDestroy_v2(CUcontext context);
CUDA_EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned flags);
CUDA_EXPORT CUresult cuCtxDetach(CUcontext context);
CUDA_EXPORT CUresult cuCtxGetCurrent(CUcontext *context);
CUDA_EXPORT CUresult cuCtxSetCurrent(CUcontext context);
CUDA_EXPORT CUresult cuCtxPushCurrent(CUcontext context);
CUDA_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context);
CUDA_EXPORT CUresult cuCtxPopCurrent(CUcontext *context);
CUDA_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUDA_EXPORT CUresult cuCtxGetDevice(CUdevice *device);
CUDA_EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context);
CUDA_EXPORT CUresult cuCtxSynchronize(void);
CUDA_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context);

CUDA_EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUDA_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size);
CUDA_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                        unsigned element_size);
CUDA_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags);
CUDA_EXPORT CUresult cuMemFree_v2(CUdeviceptr address);

CUDA_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUDA_EXPORT CUresult cuModuleUnload(CUmodule module);
CUDA_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
#endif
