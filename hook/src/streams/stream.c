/* SPDX-License-Identifier: Apache-2.0
 *
 * The streams that a program makes. One whose queues (queues.h) cannot be had is destroyed again.
 */
#include "accounting/device.h"
#include "streams/queues.h"

struct wanted {
    CUstream made;
    CUgreenCtx green;
    unsigned flags;
    int priority;
};

static CUresult make(CUstream *stream, const char *call, queues_attempt *attempt, struct wanted *wanted) {
    bool made;
    CUresult result = queues_take(call, attempt, wanted, &made);
    if (result == CUDA_SUCCESS)
        *stream = wanted->made;
    else if (made)
        DRIVER(cuStreamDestroy_v2, wanted->made);
    return result;
}

static CUresult attempt_plain(void *arguments) {
    struct wanted *wanted = arguments;
    return DRIVER(cuStreamCreate, &wanted->made, wanted->flags);
}

CUresult hooked_cuStreamCreate(CUstream *stream, unsigned flags) {
    struct wanted wanted = {.flags = flags};
    return make(stream, "cuStreamCreate", attempt_plain, &wanted);
}

static CUresult attempt_priority(void *arguments) {
    struct wanted *wanted = arguments;
    return DRIVER(cuStreamCreateWithPriority, &wanted->made, wanted->flags, wanted->priority);
}

CUresult hooked_cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    struct wanted wanted = {.flags = flags, .priority = priority};
    return make(stream, "cuStreamCreateWithPriority", attempt_priority, &wanted);
}

static CUresult attempt_green(void *arguments) {
    struct wanted *wanted = arguments;
    return DRIVER(cuGreenCtxStreamCreate, &wanted->made, wanted->green, wanted->flags, wanted->priority);
}

/* It is taken of the green context's device, whatever is current. */
CUresult hooked_cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority) {
    struct wanted wanted = {.green = green, .flags = flags, .priority = priority};
    CUcontext context = NULL;
    (void)DRIVER(cuCtxFromGreenCtx, &context, green);
    bool pushed = device_push(context);
    CUresult result = make(stream, "cuGreenCtxStreamCreate", attempt_green, &wanted);
    device_pop(pushed);
    return result;
}
