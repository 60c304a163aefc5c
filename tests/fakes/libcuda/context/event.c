/* SPDX-License-Identifier: Apache-2.0
 *
 * Events. What is recorded in a captured stream is recorded in the graph, and a stream that waits for it
 * joins the capture.
 */
#include "libcuda/context/event.h"

#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"
#include "libcuda/work/work.h"

#define KNOWN_FLAGS 7u

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (event == NULL || flags > KNOWN_FLAGS) return driver_leave(CUDA_ERROR_INVALID_VALUE);
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
    work_forget_event(event);
    handle_delete(event);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent event) {
    return cuEventDestroy_v2(event);
}

static CUresult record(CUevent handle, CUstream stream, bool per_thread) {
    static const struct operation nothing = {.kind = OPERATION_NOTHING};
    struct lane lane;
    CUresult result = work_enter(stream, per_thread, &lane);
    if (result != CUDA_SUCCESS) return result;
    struct event *event = handle_find(HANDLE_EVENT, handle);
    if (event == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    event->captured = lane.made == NULL ? NULL : lane.made->capture;
    if (event->captured != NULL) return driver_leave(CUDA_SUCCESS);
    bool legacy = stream == NULL || stream == CU_STREAM_LEGACY;
    event->stream = legacy ? NULL : stream;
    event->order = pool_last_order();
    work_forget_event(event);
    event->ended = 0;
    event->sequence = work_add(&lane, &nothing, 0, event);
    return driver_leave(lane.context->error);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return record(event, stream, false);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return record(event, stream == NULL ? CU_STREAM_PER_THREAD : stream, true);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuEventRecord_ptsz(event, stream);
}

static CUresult wait_event(CUstream stream, CUevent handle, bool per_thread) {
    static const struct operation nothing = {.kind = OPERATION_NOTHING};
    struct lane lane;
    CUresult result = work_enter(stream, per_thread, &lane);
    if (result != CUDA_SUCCESS) return result;
    const struct event *event = handle_find(HANDLE_EVENT, handle);
    if (event == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (event->captured != NULL && lane.made != NULL) {
        return driver_leave(capture_join(lane.made, event->captured));
    }
    bool captured = lane.made != NULL && lane.made->capture != NULL;
    if (!captured && event->sequence != 0) work_add(&lane, &nothing, event->sequence, NULL);
    return driver_leave(lane.context->error);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : wait_event(stream, event, false);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : wait_event(stream, event, true);
}

/* enter_event for a question, which breaks captures that do not allow such calls. */
static CUresult enter_question(CUevent handle, struct event **event) {
    CUresult result = enter_event(handle, event);
    if (result != CUDA_SUCCESS) return result;
    if ((*event)->context->error != CUDA_SUCCESS) return driver_leave((*event)->context->error);
    return capture_refuses() ? driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent handle) {
    struct event *event = NULL;
    CUresult result = enter_question(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    struct context *context = event->context;
    struct until until = {event->stream, event->order};
    result = work_wait_for(context, event->sequence);
    if (until.order > 0) pool_synchronise(context->device, until);
    return driver_leave(result);
}

CUresult cuEventQuery(CUevent handle) {
    struct event *event = NULL;
    CUresult result = enter_question(handle, &event);
    if (result != CUDA_SUCCESS) return result;
    bool done = work_is_done(event->sequence);
    if (event->context->error != CUDA_SUCCESS) return driver_leave(event->context->error);
    return driver_leave(done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    work_advance();
    const struct event *first = handle_find(HANDLE_EVENT, from), *last = handle_find(HANDLE_EVENT, to);
    if (milliseconds == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (first == NULL || last == NULL || first->sequence == 0 || last->sequence == 0) {
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (first->ended == 0 || last->ended == 0) return driver_leave(CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((double)((int64_t)(last->ended - first->ended)) / 1e6);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    return cuEventElapsedTime_v2(milliseconds, from, to);
}
