/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills, with and without a stream. A call without one waits, unless it stays on devices; so does
 * a copy to or from memory of the host that is not registered, which a card stages.
 */
#include "libcuda/work/copy.h"

#include <string.h>

#include "libcuda/work/contents.h"
#include "libcuda/work/host.h"
#include "libcuda/work/work.h"

CUresult copy_submit(const struct lane *lane, const struct operation *operation, bool waits) {
    uint64_t sequence;
    bool bus = operation->kind == OPERATION_COPY && operation->to_device != operation->from_device;
    uint64_t host = operation->to_device ? operation->from : operation->to;
    if (bus && operation->size != 0 && host == 0) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = work_submit(lane, operation, &sequence);
    bool staged = bus && !host_is_registered(host);
    if (result == CUDA_SUCCESS && sequence != 0 && (staged || (waits && bus)))
        result = work_wait(lane, sequence);
    return result;
}

static CUresult run(const char *call, struct operation operation, CUstream stream, bool per_thread,
                    bool waits) {
    struct lane lane;
    driver_step(call);
    CUresult result = work_enter(stream, per_thread, &lane);
    return result == CUDA_SUCCESS ? driver_leave(copy_submit(&lane, &operation, waits)) : result;
}

static struct operation copy(uint64_t to, uint64_t from, size_t size, bool to_device, bool from_device) {
    return (struct operation){.kind = OPERATION_COPY,
                              .to = to,
                              .from = from,
                              .size = size,
                              .rows = 1,
                              .layers = 1,
                              .to_device = to_device,
                              .from_device = from_device};
}

/* By addresses alone, as unified addressing does. */
static struct operation copy_any(uint64_t to, uint64_t from, size_t size) {
    return copy(to, from, size, contents_is_device(to), contents_is_device(from));
}

static struct operation copy_in(uint64_t to, const void *from, size_t size) {
    return copy(to, (uint64_t)(uintptr_t)from, size, true, false);
}

static struct operation copy_out(const void *to, uint64_t from, size_t size) {
    return copy((uint64_t)(uintptr_t)to, from, size, false, true);
}

static struct operation fill(uint64_t to, size_t pitch, unsigned value, unsigned step, size_t count,
                             size_t height) {
    struct operation operation = {.kind = OPERATION_FILL,
                                  .to = to,
                                  .to_device = true,
                                  .size = count * step,
                                  .rows = height,
                                  .layers = 1,
                                  .to_pitch = pitch,
                                  .step = step};
    memcpy(operation.pattern, &value, step); /* little-endian */
    return operation;
}

#define BOTH(call, twin, parameters, operation, stream, waits)                                               \
    CUresult call parameters {                                                                               \
        return run(#call, operation, stream, false, waits);                                                  \
    }                                                                                                        \
    CUresult twin parameters {                                                                               \
        return run(#call, operation, stream, true, waits);                                                   \
    }

BOTH(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t size), copy_any(to, from, size), NULL,
     true)
BOTH(cuMemcpyAsync, cuMemcpyAsync_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
     copy_any(to, from, size), stream, false)
BOTH(cuMemcpyPeer, cuMemcpyPeer_ptds,
     (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t size),
     ((void)there, (void)here, copy(to, from, size, true, true)), NULL, true)
BOTH(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
     (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t size, CUstream stream),
     ((void)there, (void)here, copy(to, from, size, true, true)), stream, false)
BOTH(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void *from, size_t size),
     copy_in(to, from, size), NULL, true)
BOTH(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void *to, CUdeviceptr from, size_t size),
     copy_out(to, from, size), NULL, true)
BOTH(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, size_t size),
     copy(to, from, size, true, true), NULL, true)
BOTH(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
     (CUdeviceptr to, const void *from, size_t size, CUstream stream), copy_in(to, from, size), stream, false)
BOTH(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
     (void *to, CUdeviceptr from, size_t size, CUstream stream), copy_out(to, from, size), stream, false)
BOTH(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
     (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream), copy(to, from, size, true, true),
     stream, false)
BOTH(cuMemsetD8_v2, cuMemsetD8_v2_ptds, (CUdeviceptr to, unsigned char value, size_t count),
     fill(to, 0, value, 1, count, 1), NULL, false)
BOTH(cuMemsetD16_v2, cuMemsetD16_v2_ptds, (CUdeviceptr to, unsigned short value, size_t count),
     fill(to, 0, value, 2, count, 1), NULL, false)
BOTH(cuMemsetD32_v2, cuMemsetD32_v2_ptds, (CUdeviceptr to, unsigned value, size_t count),
     fill(to, 0, value, 4, count, 1), NULL, false)
BOTH(cuMemsetD8Async, cuMemsetD8Async_ptsz,
     (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), fill(to, 0, value, 1, count, 1),
     stream, false)
BOTH(cuMemsetD16Async, cuMemsetD16Async_ptsz,
     (CUdeviceptr to, unsigned short value, size_t count, CUstream stream), fill(to, 0, value, 2, count, 1),
     stream, false)
BOTH(cuMemsetD32Async, cuMemsetD32Async_ptsz, (CUdeviceptr to, unsigned value, size_t count, CUstream stream),
     fill(to, 0, value, 4, count, 1), stream, false)
BOTH(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds,
     (CUdeviceptr to, size_t pitch, unsigned char value, size_t count, size_t height),
     fill(to, pitch, value, 1, count, height), NULL, false)
BOTH(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds,
     (CUdeviceptr to, size_t pitch, unsigned short value, size_t count, size_t height),
     fill(to, pitch, value, 2, count, height), NULL, false)
BOTH(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds,
     (CUdeviceptr to, size_t pitch, unsigned value, size_t count, size_t height),
     fill(to, pitch, value, 4, count, height), NULL, false)
BOTH(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,
     (CUdeviceptr to, size_t pitch, unsigned char value, size_t count, size_t height, CUstream stream),
     fill(to, pitch, value, 1, count, height), stream, false)
BOTH(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz,
     (CUdeviceptr to, size_t pitch, unsigned short value, size_t count, size_t height, CUstream stream),
     fill(to, pitch, value, 2, count, height), stream, false)
BOTH(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz,
     (CUdeviceptr to, size_t pitch, unsigned value, size_t count, size_t height, CUstream stream),
     fill(to, pitch, value, 4, count, height), stream, false)
