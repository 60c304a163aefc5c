/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, and memory that is allocated and freed in them. A synchronisation is when memory that was freed in
 * a stream is given back.
 */
#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"
#include "libcuda/work/work.h"

#include <stdlib.h>

#define KNOWN_FLAGS  1u
#define QUEUES       (UINT64_C(512) << 10) /* as on driver 580 */
#define NON_BLOCKING 1u                    /* does not wait for the legacy stream, nor that for it */

static bool is_default(CUstream stream) {
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The default stream of a call's twin is the thread's. */
static CUstream twin(CUstream stream) {
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

CUresult driver_enter_stream(CUstream handle, struct context **context) {
    CUresult result = is_default(handle) ? driver_enter_context(context) : driver_enter();
    if (result == CUDA_SUCCESS && handle == CU_STREAM_PER_THREAD && context_is_green())
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (result == CUDA_SUCCESS && handle == CU_STREAM_PER_THREAD && stream_own(*context) == NULL)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (is_default(handle)) return result;
    if (result != CUDA_SUCCESS) return result;
    const struct stream *stream = handle_find(HANDLE_STREAM, handle);
    if (stream == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    *context = stream->context;
    if (!(*context)->alive) return driver_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return (*context)->error == CUDA_SUCCESS ? CUDA_SUCCESS : driver_leave((*context)->error);
}

struct stream *stream_new(struct context *context) {
    struct stream *stream = handle_new(HANDLE_STREAM, sizeof *stream);
    if (stream == NULL) abort(); /* this is a test double */
    stream->context = context;
    if (store_take(context, &context->queues, QUEUES)) return stream;
    handle_delete(stream);
    return NULL;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (stream == NULL || flags > KNOWN_FLAGS) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct stream *new = stream_new(context);
    if (new == NULL) {
        driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        return refuse_memory();
    }
    new->blocking = (flags & NON_BLOCKING) == 0;
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
    if (found->capture != NULL) capture_end(found);
    work_forget_stream(found); /* the work itself goes on */
    if (found->context->alive) store_give(&found->context->queues, QUEUES);
    handle_delete(found);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

/* The graph that is captured in the stream, or NULL. */
static struct graph *captured_in(CUstream handle) {
    const struct stream *stream = stream_named(handle);
    return stream == NULL || stream->capture == NULL ? NULL : stream->capture->graph;
}

/* work_enter for a call that asks for the state of a stream: it may not be captured, and breaks captures that
 * do not allow such calls. */
static CUresult enter_idle(CUstream handle, bool per_thread, struct lane *lane) {
    CUresult result = work_enter(handle, per_thread, lane);
    if (result != CUDA_SUCCESS) return result;
    bool captured = lane->made != NULL && lane->made->capture != NULL;
    if (captured) lane->made->capture->invalid = true;
    if (!captured && !capture_refuses()) return CUDA_SUCCESS;
    return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static CUresult synchronise(CUstream stream, bool per_thread) {
    struct lane lane;
    CUresult result = enter_idle(stream, per_thread, &lane);
    if (result != CUDA_SUCCESS) return result;
    result = work_wait(&lane, UINT64_MAX);
    /* The legacy stream waits for all others. */
    bool all = stream == NULL || stream == CU_STREAM_LEGACY;
    pool_synchronise(lane.context->device, (struct until){all ? NULL : stream, UINT64_MAX});
    return driver_leave(result);
}

CUresult cuStreamSynchronize(CUstream stream) {
    return synchronise(stream, false);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return synchronise(twin(stream), true);
}

static CUresult query(CUstream stream, bool per_thread) {
    struct lane lane;
    CUresult result = enter_idle(stream, per_thread, &lane);
    if (result != CUDA_SUCCESS) return result;
    bool pending = work_pending(&lane);
    if (lane.context->error != CUDA_SUCCESS) return driver_leave(lane.context->error);
    return driver_leave(pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult cuStreamQuery(CUstream stream) {
    return query(stream, false);
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
    return query(stream, true);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(handle, &context);
    if (result != CUDA_SUCCESS) return result;
    if (flags == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct stream *stream = stream_named(handle);
    if (stream != NULL && stream->capture != NULL) { /* as seen on an H200 */
        stream->capture->invalid = true;
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    *flags = stream == NULL || stream->blocking ? 0 : NON_BLOCKING;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned *flags) {
    return cuStreamGetFlags(twin(stream), flags);
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
    return cuMemAllocAsync(address, size, twin(stream));
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
    return cuMemAllocFromPoolAsync(address, size, pool, twin(stream));
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
    return cuMemFreeAsync(address, twin(stream));
}
