/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream capture: what is given to the stream becomes nodes of a graph. Which calls of which threads break a
 * capture was seen on an H200 (docs/decisions/0055).
 */
#include <stdlib.h>

#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"

#define MODES 3

static struct capture *captures; /* on their way */
static _Thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool capture_any(void) {
    return captures != NULL;
}

bool capture_refuses(void) {
    bool refused = false;
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        bool own = pthread_equal(capture->thread, pthread_self());
        bool everybody =
            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        bool forbids = everybody || (own && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED);
        if (!forbids || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        capture->invalid = true;
        refused = true;
    }
    return refused;
}

bool capture_breaks(const struct context *context) {
    bool broken = false;
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        if (capture->origin->context != context) continue;
        capture->invalid = true;
        broken = true;
    }
    return broken;
}

/* driver_enter, and finds a stream that can capture: the legacy one cannot. */
static CUresult enter_capturable(CUstream handle, struct stream **stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(handle, &context);
    if (result != CUDA_SUCCESS) return result;
    *stream = stream_named(handle);
    return *stream != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
    struct stream *stream = NULL;
    CUresult result = enter_capturable(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (mode < 0 || mode >= MODES) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (stream->capture != NULL) return driver_leave(CUDA_ERROR_ILLEGAL_STATE);
    struct capture *capture = calloc(1, sizeof *capture);
    struct graph *graph = graph_new();
    if (capture == NULL || graph == NULL) abort(); /* this is a test double */
    *capture = (struct capture){
        .graph = graph, .origin = stream, .mode = mode, .thread = pthread_self(), .next = captures};
    captures = capture;
    stream->capture = capture;
    stream->joined = NULL;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
    return cuStreamBeginCapture_v2(stream == NULL ? CU_STREAM_PER_THREAD : stream, mode);
}

CUresult capture_join(struct stream *stream, const struct capture *wanted) {
    struct capture *capture = captures;
    while (capture != NULL && capture != wanted) capture = capture->next;
    if (capture == NULL)
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* it ended, and the event is of no use */
    if (stream->capture == capture) return CUDA_SUCCESS;
    if (stream->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    stream->capture = capture;
    stream->joined = capture->origin->joined;
    capture->origin->joined = stream;
    return CUDA_SUCCESS;
}

/* Nobody takes part any more. Returns the graph. */
static struct graph *leave(struct capture *capture) {
    struct capture **link = &captures;
    struct graph *graph = capture->graph;
    for (struct stream *stream = capture->origin, *next; stream != NULL; stream = next) {
        next = stream->joined;
        stream->joined = NULL;
        stream->capture = NULL;
    }
    while (*link != capture) link = &(*link)->next;
    *link = capture->next;
    free(capture);
    return graph;
}

void capture_end(struct stream *stream) {
    struct capture *capture = stream->capture;
    if (stream == capture->origin) {
        graph_destroy(leave(capture));
        return;
    }
    struct stream **link = &capture->origin->joined;
    while (*link != stream) link = &(*link)->joined;
    *link = stream->joined;
    capture->invalid = true;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    struct stream *stream = NULL;
    CUresult result = enter_capturable(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (graph == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (stream->capture == NULL) return driver_leave(CUDA_ERROR_ILLEGAL_STATE);
    if (stream->capture->origin != stream) return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    bool valid = !stream->capture->invalid;
    struct graph *captured = leave(stream->capture);
    *graph = valid ? captured : NULL;
    if (!valid) graph_destroy(captured);
    return driver_leave(valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return cuStreamEndCapture(stream == NULL ? CU_STREAM_PER_THREAD : stream, graph);
}

CUresult cuStreamIsCapturing(CUstream handle, int *status) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(handle, &context);
    if (result != CUDA_SUCCESS) return result;
    if (status == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct stream *stream = stream_named(handle);
    const struct capture *capture = stream == NULL ? NULL : stream->capture;
    *status = capture == NULL    ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status) {
    return cuStreamIsCapturing(stream == NULL ? CU_STREAM_PER_THREAD : stream, status);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    if (mode == NULL || *mode < 0 || *mode >= MODES) return CUDA_ERROR_INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
