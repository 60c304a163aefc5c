/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events. Work is done by the time the call returns, so they order nothing; but a synchronisation
 * is when memory that was freed in a stream is given back.
 */
#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"

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
    if (found->capture != NULL) graph_destroy(found->capture);
    handle_delete(found);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

/* The graph that is captured in the stream, or NULL. */
static struct graph *captured_in(CUstream handle) {
    const struct stream *stream = is_default(handle) ? NULL : handle_find(HANDLE_STREAM, handle);
    return stream == NULL ? NULL : stream->capture;
}

/* driver_enter_stream for a call that may not happen during a capture, and makes the capture invalid. */
static CUresult enter_idle(CUstream handle, struct context **context) {
    CUresult result = driver_enter_stream(handle, context);
    if (result != CUDA_SUCCESS || captured_in(handle) == NULL) return result;
    struct stream *stream = handle_find(HANDLE_STREAM, handle);
    stream->capture_invalid = true;
    return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult cuStreamSynchronize(CUstream stream) {
    struct context *context = NULL;
    CUresult result = enter_idle(stream, &context);
    if (result != CUDA_SUCCESS) return result;
    /* The legacy stream waits for all others. */
    bool all = stream == NULL || stream == CU_STREAM_LEGACY;
    pool_synchronise(context->device, (struct until){all ? NULL : stream, UINT64_MAX});
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return cuStreamSynchronize(stream == NULL ? CU_STREAM_PER_THREAD : stream);
}

struct event {
    struct handle handle;
    struct context *context;
    const void *stream;
    uint64_t order; /* of the last free before it was recorded; 0: none, or it was not recorded */
};

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (event == NULL || flags > 7) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct event *new = handle_new(HANDLE_EVENT, sizeof *new);
    if (new == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    new->context = context;
    *event = new;
    return driver_leave(CUDA_SUCCESS);
}

/* driver_enter, and finds the event. */
static CUresult enter_event(CUevent handle, struct event **event) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *event = handle_find(HANDLE_EVENT, handle);
    return *event != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuEventDestroy_v2(CUevent handle) {
    struct event *event = NULL;
    CUresult result = enter_event(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    handle_delete(event);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent event) {
    return cuEventDestroy_v2(event);
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(stream, &context);
    if (result != CUDA_SUCCESS) return result;
    struct event *event = handle_find(HANDLE_EVENT, handle);
    if (event == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    bool legacy = stream == NULL || stream == CU_STREAM_LEGACY;
    event->stream = legacy ? NULL : stream;
    event->order = pool_last_order();
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return cuEventRecord(event, stream == NULL ? CU_STREAM_PER_THREAD : stream);
}

CUresult cuEventSynchronize(CUevent handle) {
    struct event *event = NULL;
    CUresult result = enter_event(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    if (event->order > 0)
        pool_synchronise(event->context->device, (struct until){event->stream, event->order});
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuEventQuery(CUevent handle) {
    struct event *event = NULL;
    CUresult result = enter_event(handle, &event);
    return result != CUDA_SUCCESS ? result : driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamQuery(CUstream stream) {
    struct context *context = NULL;
    CUresult result = enter_idle(stream, &context);
    return result != CUDA_SUCCESS ? result : driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
    return cuStreamQuery(stream);
}

static CUresult allocate(struct pool *pool, uint64_t size, CUstream stream, CUdeviceptr *address) {
    struct graph *graph = captured_in(stream);
    if (graph == NULL) return pool_allocate(pool, size, address);
    if (address == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (pool->arena.device == ARENA_HOST) return CUDA_ERROR_NOT_SUPPORTED;
    struct node *node = NULL; /* the graph's, not the pool's */
    CUresult result = graph_add_allocation(graph, pool->arena.device, size, &node);
    if (result == CUDA_SUCCESS) *address = node->address;
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(stream, &context);
    if (result != CUDA_SUCCESS) return result;
    struct pool *pool = pool_current(context->device);
    result = pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : allocate(pool, size, stream, address);
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
    result = pool == NULL ? CUDA_ERROR_INVALID_VALUE : allocate(pool, size, stream, address);
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
    struct graph *graph = captured_in(stream);
    struct node *node = NULL;
    return driver_leave(graph == NULL ? memory_free_late(address, stream)
                                      : graph_add_free(graph, address, &node));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return cuMemFreeAsync(address, stream == NULL ? CU_STREAM_PER_THREAD : stream);
}
