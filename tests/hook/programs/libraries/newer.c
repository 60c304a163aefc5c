/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver of a CUDA to come, whose cuMemAlloc has a third form since version 99000.
 */
#include "tables/driver.h"

#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size);
EXPORTED CUresult cuMemAlloc_v3(CUdeviceptr *address, int kind, size_t size);
EXPORTED CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                      int *status);

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    *address = size;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v3(CUdeviceptr *address, int kind, size_t size) {
    *address = size + (size_t)kind;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)flags;
    *status = 0;
    bool newer = version >= 99000;
    *function = strcmp(name, "cuMemAlloc") != 0 ? NULL
                : newer                         ? (void *)cuMemAlloc_v3
                                                : (void *)cuMemAlloc_v2;
    return CUDA_SUCCESS;
}
