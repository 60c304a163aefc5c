/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams. Work is done by the time the call returns, so they order nothing; but a synchronisation is when
 * pools give memory back.
 */
#include "pool.h"

#define KNOWN_FLAGS 1u /* not synchronising with the legacy stream */

static bool is_default(CUstream stream) {
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CUresult driver_enter_stream(CUstream handle, struct context **context) {
    if (is_default(handle)) return driver_enter_context(context);
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct stream *stream = handle_find(HANDLE_STREAM, handle);
    if (stream == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    *context = stream->context;
    return (*context)->alive ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (stream == NULL || flags > KNOWN_FLAGS) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct stream *new = handle_new(HANDLE_STREAM, sizeof *new);
    if (new == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    new->context = context;
    *stream = new;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)priority; /* clamped to what the device has, and here nothing waits */
    return cuStreamCreate(stream, flags);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct stream *found = handle_find(HANDLE_STREAM, stream);
    if (found == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    handle_delete(found);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

CUresult cuStreamSynchronize(CUstream stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(stream, &context);
    if (result != CUDA_SUCCESS) return result;
    pool_synchronise(context->device);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return cuStreamSynchronize(stream);
}

CUresult cuStreamQuery(CUstream stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(stream, &context);
    return result != CUDA_SUCCESS ? result : driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
    return cuStreamQuery(stream);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(stream, &context);
    if (result != CUDA_SUCCESS) return result;
    struct pool *pool = pool_current(context->device);
    result = pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : pool_allocate(pool, size, address);
    driver_leave(result);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? refuse_memory() : result;
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t size, CUstream stream) {
    return cuMemAllocAsync(address, size, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool handle, CUstream stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(stream, &context);
    if (result != CUDA_SUCCESS) return result;
    struct pool *pool = handle_find(HANDLE_POOL, handle); /* of any device */
    result = pool == NULL ? CUDA_ERROR_INVALID_VALUE : pool_allocate(pool, size, address);
    driver_leave(result);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? refuse_memory() : result;
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
    return cuMemAllocFromPoolAsync(address, size, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(stream, &context);
    if (result != CUDA_SUCCESS) return result;
    return driver_leave(memory_free(address));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return cuMemFreeAsync(address, stream);
}
