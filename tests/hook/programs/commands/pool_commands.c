/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, pools and stream-ordered memory.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

static CUresult run_stream(const char *command, const size_t *number, char *values) {
    CUstream stream = NULL;
    if (strcmp(command, "destroystream") == 0) return cuda.cuStreamDestroy_v2((CUstream)number[0]);
    if (strcmp(command, "stream") == 0) {
        CUresult (*create)(CUstream *, unsigned) =
            (CUresult (*)(CUstream *, unsigned))driver_symbol("cuStreamCreate");
        CUresult result = create(&stream, 0);
        sprintf(values, " %p", (void *)stream);
        return result;
    }
    if (strcmp(command, "event") == 0) {
        void *event = NULL;
        CUresult (*create)(void **, unsigned) =
            (CUresult (*)(void **, unsigned))driver_symbol("cuEventCreate");
        CUresult (*record)(void *, CUstream) = (CUresult (*)(void *, CUstream))driver_symbol("cuEventRecord");
        CUresult result = create(&event, 0);
        if (result == CUDA_SUCCESS) result = record(event, (CUstream)number[0]);
        sprintf(values, " %p", event);
        return result;
    }
    if (strcmp(command, "syncevent") == 0) return cuda.cuEventSynchronize((void *)number[0]);
    if (strcmp(command, "sync") == 0) return cuda.cuStreamSynchronize((CUstream)number[0]);
    if (strcmp(command, "syncp") == 0) return cuda.cuStreamSynchronize_ptsz((CUstream)number[0]);
    if (strcmp(command, "syncall") == 0) return cuda.cuCtxSynchronize();
    if (strcmp(command, "syncall2") == 0) return cuda.cuCtxSynchronize_v2((CUcontext)number[0]);
    return -1;
}

/* async SIZE STREAM, frompool SIZE POOL STREAM, freeasync ADDRESS STREAM; with a `p` the per-thread twin. */
static CUresult run_allocation(const char *command, const size_t *number, char *values) {
    CUresult result = -1;
    CUdeviceptr address = 0x5a5a;
    CUstream stream = (CUstream)number[1], third = (CUstream)number[2];
    CUmemoryPool pool = (CUmemoryPool)number[1];
    if (strcmp(command, "freeasync") == 0) return cuda.cuMemFreeAsync(number[0], stream);
    if (strcmp(command, "freeasyncp") == 0) return cuda.cuMemFreeAsync_ptsz(number[0], stream);
    if (strcmp(command, "nullasync") == 0) return cuda.cuMemAllocAsync(NULL, number[0], stream);
    if (strcmp(command, "async") == 0) result = cuda.cuMemAllocAsync(&address, number[0], stream);
    if (strcmp(command, "asyncp") == 0) result = cuda.cuMemAllocAsync_ptsz(&address, number[0], stream);
    if (strcmp(command, "frompool") == 0)
        result = cuda.cuMemAllocFromPoolAsync(&address, number[0], pool, third);
    if (strcmp(command, "frompoolp") == 0)
        result = cuda.cuMemAllocFromPoolAsync_ptsz(&address, number[0], pool, third);
    if (result != -1) sprintf(values, " %#lx", (unsigned long)address);
    return result;
}

/* newpool TYPE ORDINAL LARGEST HANDLES: a pool of that location, which can be exported as such handles. */
static CUresult create_pool(const size_t *number, CUmemoryPool *pool) {
    struct {
        struct pool_properties read;
        void *security;
        size_t largest;
        char rest[56];
    } properties = {.read = {.type = 1,
                             .handle_types = (int)number[3],
                             .location = {.type = (int)number[0], .ordinal = (int)number[1]}},
                    .largest = number[2]};
    _Static_assert(sizeof properties == 88, "as in cuda.h");
    return cuda.cuMemPoolCreate(pool, &properties.read);
}

CUresult run_pool(const char *command, const size_t *number, char *values) {
    CUmemoryPool pool = (CUmemoryPool)number[0];
    uint64_t value = number[1];
    CUresult result = run_stream(command, number, values);
    if (result == -1) result = run_allocation(command, number, values);
    if (result != -1) return result;
    if (strcmp(command, "destroypool") == 0) return cuda.cuMemPoolDestroy(pool);
    if (strcmp(command, "exportpointer") == 0) {
        char data[64];
        return cuda.cuMemPoolExportPointer(data, number[0]);
    }
    if (strcmp(command, "exportpool") == 0) {
        int descriptor = 0x5a5a;
        result = cuda.cuMemPoolExportToShareableHandle(&descriptor, pool, 1, 0);
        sprintf(values, " %d", descriptor);
        return result;
    }
    if (strcmp(command, "trim") == 0) return cuda.cuMemPoolTrimTo(pool, value);
    if (strcmp(command, "threshold") == 0) return cuda.cuMemPoolSetAttribute(pool, 4, &value);
    if (strcmp(command, "setpool") == 0)
        return ((CUresult (*)(CUdevice, CUmemoryPool))driver_symbol("cuDeviceSetMemPool"))(
            (CUdevice)number[0], (CUmemoryPool)number[1]);
    if (strcmp(command, "reserved") == 0) {
        result = cuda.cuMemPoolGetAttribute(pool, MEMPOOL_RESERVED, &value);
        sprintf(values, " %lu", (unsigned long)value);
        return result;
    }
    pool = (CUmemoryPool)0x5a5a;
    if (strcmp(command, "newpool") == 0) result = create_pool(number, &pool);
    if (strcmp(command, "defaultpool") == 0)
        result = cuda.cuDeviceGetDefaultMemPool(&pool, (CUdevice)number[0]);
    if (result != -1) sprintf(values, " %p", (void *)pool);
    return result;
}
