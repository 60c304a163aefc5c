/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of the CUDA driver that the porter makes. The library is opened when the porter starts.
 */
#ifndef PORTER_DRIVER_H
#define PORTER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUmemHandle;
typedef void *CUcontext;
typedef void *CUstream;
typedef void *CUevent;

struct cu_location {
    int type, id;
};

struct cu_properties { /* CUmemAllocationProp */
    int type, handle_types;
    struct cu_location location;
    void *win32;
    unsigned char flags[8];
};
_Static_assert(sizeof(struct cu_properties) == 32, "as in cuda.h");

struct cu_access { /* CUmemAccessDesc */
    struct cu_location location;
    int flags;
};

enum {
    CU_SUCCESS = 0,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_SUPPORTED = 801,
    CU_LOCATION_DEVICE = 1,
    CU_READ_WRITE = 3,
    CU_POSIX_DESCRIPTOR = 1,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_REGISTER_PORTABLE = 1,
};

/* X(field, symbol, parameters). */
#define DRIVER_CALLS(X)                                                                                      \
    X(init, "cuInit", (unsigned))                                                                            \
    X(device_count, "cuDeviceGetCount", (int *))                                                             \
    X(device_get, "cuDeviceGet", (CUdevice *, int))                                                          \
    X(device_uuid, "cuDeviceGetUuid", (void *, CUdevice))                                                    \
    X(context_retain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                                   \
    X(context_set, "cuCtxSetCurrent", (CUcontext))                                                           \
    X(context_synchronize, "cuCtxSynchronize", (void))                                                       \
    X(reserve, "cuMemAddressReserve", (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))      \
    X(import, "cuMemImportFromShareableHandle", (CUmemHandle *, void *, int))                                \
    X(properties, "cuMemGetAllocationPropertiesFromHandle", (struct cu_properties *, CUmemHandle))           \
    X(map, "cuMemMap", (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long))                       \
    X(set_access, "cuMemSetAccess", (CUdeviceptr, size_t, const struct cu_access *, size_t))                 \
    X(unmap, "cuMemUnmap", (CUdeviceptr, size_t))                                                            \
    X(release, "cuMemRelease", (CUmemHandle))                                                                \
    X(stream_create, "cuStreamCreate", (CUstream *, unsigned))                                               \
    X(event_create, "cuEventCreate", (CUevent *, unsigned))                                                  \
    X(event_record, "cuEventRecord", (CUevent, CUstream))                                                    \
    X(event_synchronize, "cuEventSynchronize", (CUevent))                                                    \
    X(copy_out, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))                             \
    X(copy_in, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))                        \
    X(host_register, "cuMemHostRegister_v2", (void *, size_t, unsigned))                                     \
    X(host_unregister, "cuMemHostUnregister", (void *))                                                      \
    X(error_name, "cuGetErrorName", (CUresult, const char **))

/* Since driver 570; NULL where the driver is older. */
#define CHECKPOINT_CALLS(X)                                                                                  \
    X(checkpoint_state, "cuCheckpointProcessGetState", (int, int *))                                         \
    X(checkpoint_lock, "cuCheckpointProcessLock", (int, void *))                                             \
    X(checkpoint_take, "cuCheckpointProcessCheckpoint", (int, void *))                                       \
    X(checkpoint_restore, "cuCheckpointProcessRestore", (int, void *))                                       \
    X(checkpoint_unlock, "cuCheckpointProcessUnlock", (int, void *))

#define DRIVER_FIELD(field, symbol, parameters) CUresult(*field) parameters;
struct driver {
    DRIVER_CALLS(DRIVER_FIELD)
    CHECKPOINT_CALLS(DRIVER_FIELD)
};

extern struct driver cu;

/* Opens the library and initialises the driver. False: it logged why. */
bool driver_open(const char *library);

/* Returns the driver's name of a result, for people. */
const char *driver_error(CUresult result);

#endif
