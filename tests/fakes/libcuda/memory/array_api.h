/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays, and memory of other processes and other programming interfaces, of the CUDA driver's binary
 * interface.
 */
#ifndef SIMULATED_ARRAY_API_H
#define SIMULATED_ARRAY_API_H

#include "libcuda/cuda_api.h"

typedef struct array *CUarray;
typedef struct mipmap *CUmipmappedArray;
typedef struct external_memory *CUexternalMemory;

enum {
    CUDA_ARRAY3D_LAYERED = 0x01,
    CUDA_ARRAY3D_CUBEMAP = 0x04,
    CUDA_ARRAY3D_SPARSE = 0x40,
    CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80,
    CUDA_ARRAY3D_FLAGS = 0xff, /* all of them */
};
enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };

typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR;
_Static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "as in cuda.h");

/* The forms of CUDA 2. */
typedef struct {
    unsigned width, height;
    int format;
    unsigned channels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
    unsigned width, height, depth;
    int format;
    unsigned channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
    size_t size, alignment;
    unsigned reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef struct {
    char bytes[64];
} CUipcMemHandle;

typedef struct {
    int type;
    union {
        int descriptor;
        struct {
            void *handle;
            const void *name;
        } win32;
    } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104, "as in cuda.h");

CUDA_EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor);
CUDA_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor);
CUDA_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor);
CUDA_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
CUDA_EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array);
CUDA_EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array);
CUDA_EXPORT CUresult cuArrayDestroy(CUarray array);
CUDA_EXPORT CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray array,
                                                  CUdevice device);
CUDA_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap,
                                            const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);
CUDA_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap);
CUDA_EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned level);
CUDA_EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                                           CUmipmappedArray mipmap, CUdevice device);

CUDA_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address);
CUDA_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags);
CUDA_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags);
CUDA_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address);

CUDA_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                            const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor);
CUDA_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory);

#endif
