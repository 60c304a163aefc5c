/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory management of the CUDA driver's binary interface: physical memory and addresses apart.
 */
#ifndef SIMULATED_VIRTUAL_API_H
#define SIMULATED_VIRTUAL_API_H

#include "libcuda/context/stream_api.h"

typedef uint64_t CUmemGenericAllocationHandle;

typedef struct {
    int type;
    int handle_types;
    CUmemLocation location;
    void *win32_metadata;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} CUmemAllocationProp;
_Static_assert(sizeof(CUmemAllocationProp) == 32, "as in cuda.h");

typedef struct {
    unsigned devices;
    size_t size; /* bytes of each device that can be bound */
    unsigned long long handle_types, flags;
} CUmulticastObjectProp;
_Static_assert(sizeof(CUmulticastObjectProp) == 32, "as in cuda.h");

enum { CU_MEM_ACCESS_FLAGS_PROT_NONE = 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };

CUDA_EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                                   int option);
CUDA_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                 const CUmemAllocationProp *properties, unsigned long long flags);
CUDA_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUDA_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address);
CUDA_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                            CUmemGenericAllocationHandle handle);
CUDA_EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                                  int type, unsigned long long flags);
CUDA_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                                    int type);

CUDA_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
                                         CUdeviceptr hint, unsigned long long flags);
CUDA_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size);
CUDA_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags);
CUDA_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size);
CUDA_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
                                    size_t count);
CUDA_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                    CUdeviceptr address);
CUDA_EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address);
CUDA_EXPORT CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **data,
                                            CUdeviceptr address);
CUDA_EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address);

CUDA_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size, int type,
                                                   unsigned long long flags);
CUDA_EXPORT CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *properties,
                                               int option);
CUDA_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                                       const CUmulticastObjectProp *properties);
CUDA_EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device);
CUDA_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                        CUmemGenericAllocationHandle memory, size_t memory_offset,
                                        size_t size, unsigned long long flags);
CUDA_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
                                         CUdeviceptr address, size_t size, unsigned long long flags);
CUDA_EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                                       size_t size);

#endif
