/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream capture: what is allocated and freed in the stream becomes nodes of a graph.
 */
#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"

#define MODES 3

/* driver_enter, and finds a stream that can capture: the default streams cannot. */
static CUresult enter_capturable(CUstream handle, struct stream **stream) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(handle, &context);
    if (result != CUDA_SUCCESS) return result;
    *stream = handle_find(HANDLE_STREAM, handle);
    return *stream != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
    struct stream *stream = NULL;
    CUresult result = enter_capturable(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (mode < 0 || mode >= MODES) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (stream->capture != NULL) return driver_leave(CUDA_ERROR_ILLEGAL_STATE);
    stream->capture = graph_new();
    return driver_leave(stream->capture == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
    return cuStreamBeginCapture_v2(stream, mode);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    struct stream *stream = NULL;
    CUresult result = enter_capturable(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (graph == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (stream->capture == NULL) return driver_leave(CUDA_ERROR_ILLEGAL_STATE);
    struct graph *captured = stream->capture;
    bool valid = !stream->capture_invalid;
    stream->capture = NULL;
    stream->capture_invalid = false;
    *graph = valid ? captured : NULL;
    if (!valid) graph_destroy(captured);
    return driver_leave(valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return cuStreamEndCapture(stream, graph);
}

CUresult cuStreamIsCapturing(CUstream handle, int *status) {
    struct context *context = NULL;
    CUresult result = driver_enter_stream(handle, &context);
    if (result != CUDA_SUCCESS) return result;
    if (status == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct stream *stream = handle_find(HANDLE_STREAM, handle);
    bool capturing = stream != NULL && stream->capture != NULL;
    *status = !capturing                ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                        : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status) {
    return cuStreamIsCapturing(stream, status);
}
