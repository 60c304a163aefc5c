/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, pools and stream-ordered memory of the CUDA driver's binary interface.
 */
#ifndef SIMULATED_STREAM_API_H
#define SIMULATED_STREAM_API_H

#include "libcuda/cuda_api.h"

typedef struct pool *CUmemoryPool;

#define CU_STREAM_LEGACY     ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_ALLOCATION_TYPE_MANAGED = 2 };
enum {
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_LOCATION_TYPE_HOST = 2,
    CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
};
enum {
    CU_MEM_HANDLE_TYPE_NONE = 0,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
    CU_MEM_HANDLE_TYPE_FABRIC = 8,
};

enum {
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1, /* int, as the next two */
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4, /* uint64_t, as all that follow */
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
    CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
};

typedef struct {
    int type;
    int id;
} CUmemLocation;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef struct {
    int allocation_type;
    int handle_types;
    CUmemLocation location;
    void *win32_security;
    size_t most; /* bytes; 0: as many as the device has */
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;
_Static_assert(sizeof(CUmemPoolProps) == 88, "as in cuda.h");

CUDA_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUDA_EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned *flags);
CUDA_EXPORT CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned *flags);
CUDA_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CUDA_EXPORT CUresult cuStreamDestroy(CUstream stream);
CUDA_EXPORT CUresult cuStreamDestroy_v2(CUstream stream);
CUDA_EXPORT CUresult cuStreamSynchronize(CUstream stream);
CUDA_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUDA_EXPORT CUresult cuStreamQuery(CUstream stream);
CUDA_EXPORT CUresult cuStreamQuery_ptsz(CUstream stream);

typedef struct event *CUevent;
CUDA_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags);
CUDA_EXPORT CUresult cuEventDestroy(CUevent event);
CUDA_EXPORT CUresult cuEventDestroy_v2(CUevent event);
CUDA_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream);
CUDA_EXPORT CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUDA_EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
CUDA_EXPORT CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags);
CUDA_EXPORT CUresult cuEventSynchronize(CUevent event);
CUDA_EXPORT CUresult cuEventQuery(CUevent event);
CUDA_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to);
CUDA_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to);
CUDA_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUDA_EXPORT CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags);

CUDA_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream);
CUDA_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t size, CUstream stream);
CUDA_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool,
                                             CUstream stream);
CUDA_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t size, CUmemoryPool pool,
                                                  CUstream stream);
CUDA_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CUDA_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);

CUDA_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties);
CUDA_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUDA_EXPORT CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, int type,
                                                      unsigned long long flags);
CUDA_EXPORT CUresult cuMemPoolExportPointer(void *data, CUdeviceptr address);
CUDA_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUDA_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUDA_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CUDA_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count);
CUDA_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUDA_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
CUDA_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool);
CUDA_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type);
CUDA_EXPORT CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type);
CUDA_EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool);

#endif
