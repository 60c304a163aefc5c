/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/thread_stream.h"

#include "accounting/context_growth.h"
#include "gate/gate.h"
#include "scheduler/session.h"
#include "streams/queues.h"

/* More contexts than one thread works in. One that is not found is asked for again, and takes nothing. */
enum { MOST = 8 };

_Thread_local uint32_t thread_stream_epoch __attribute__((tls_model("initial-exec")));

/* The contexts in which this thread has its stream (green ones have none), by the handles that they had when
 * `epoch` was the epoch of device.h. */
static _Thread_local struct {
    uint32_t epoch, count;
    CUcontext contexts[MOST];
} had __attribute__((tls_model("initial-exec")));

static bool has(CUcontext context) {
    for (uint32_t index = 0; index < had.count && index < MOST; index++)
        if (had.contexts[index] == context) return true;
    return false;
}

/* What lives on stays known: asked again, it would be refused while something is owed. */
static void forget_changed(uint32_t now) {
    uint32_t known = had.count < MOST ? had.count : MOST;
    if (had.epoch == now) return;
    had.count = 0;
    for (uint32_t index = 0; index < known; index++)
        if (!device_has_changed(had.contexts[index], had.epoch))
            had.contexts[had.count++] = had.contexts[index];
    had.epoch = now;
}

/* The question that breaks no capture: not of this stream either, if the thread captures in it. */
static CUresult ask(void *arguments) {
    int capturing;
    (void)arguments;
    return DRIVER(cuStreamIsCapturing, (CUstream)(uintptr_t)CU_STREAM_PER_THREAD, &capturing);
}

/* False, with no error: the driver does not make it, and will say why. */
static bool make(const char *call, CUcontext context, CUresult *result) {
    bool made;
    if (!gate_is_unused()) gate_wait_open(); /* it takes memory */
    *result = queues_take(call, ask, NULL, &made);
    if (!made && *result != CUDA_ERROR_OUT_OF_MEMORY) *result = CUDA_SUCCESS;
    if (!made || *result != CUDA_SUCCESS) return false;
    had.contexts[had.count++ % MOST] = context;
    return true;
}

/* The epoch is read first: a context that begins or ends meanwhile changes it, and all is asked anew. */
CUresult thread_stream_make(const char *call) {
    CUcontext context = NULL;
    CUresult result = CUDA_SUCCESS;
    if (!driver_load() || inside_driver || !session_is_open()) return result;
    uint32_t now = atomic_load_explicit(&device_epoch, memory_order_acquire);
    if (DRIVER(cuCtxGetCurrent, &context) != CUDA_SUCCESS || !context) return result;
    forget_changed(now);
    if (!has(context) && !make(call, context, &result)) return result;
    if (had.count <= MOST && had.count == growth_contexts()) thread_stream_epoch = now;
    return result;
}
