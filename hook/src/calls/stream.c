/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream takes queues, half a MiB of the device (H200, driver 580), which the driver keeps for the next one
 * when it is destroyed. So it is measured, and destroyed again if that cannot be had; and none is made while
 * something is owed. The default streams of threads take as much with their first use, which nobody sees.
 */
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "code/sample.h"

typedef CUresult make_stream(CUstream *made, const void *arguments);

static CUresult make(CUstream *stream, const char *call, make_stream *attempt, const void *arguments) {
    struct sample before = sample_take();
    CUstream made = NULL;
    CUresult result = growth_charge_owed(before.device, call);
    if (result == CUDA_SUCCESS) result = attempt(&made, arguments);
    if (result != CUDA_SUCCESS) return result;
    result = sample_charge_fall(&before, call);
    if (result == CUDA_SUCCESS)
        *stream = made;
    else
        DRIVER(cuStreamDestroy_v2, made);
    return result;
}

struct wanted {
    CUgreenCtx green;
    unsigned flags;
    int priority;
};

static CUresult attempt_plain(CUstream *made, const void *arguments) {
    const struct wanted *wanted = arguments;
    return DRIVER(cuStreamCreate, made, wanted->flags);
}

CUresult hooked_cuStreamCreate(CUstream *stream, unsigned flags) {
    struct wanted wanted = {.flags = flags};
    return make(stream, "cuStreamCreate", attempt_plain, &wanted);
}

static CUresult attempt_priority(CUstream *made, const void *arguments) {
    const struct wanted *wanted = arguments;
    return DRIVER(cuStreamCreateWithPriority, made, wanted->flags, wanted->priority);
}

CUresult hooked_cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    struct wanted wanted = {.flags = flags, .priority = priority};
    return make(stream, "cuStreamCreateWithPriority", attempt_priority, &wanted);
}

static CUresult attempt_green(CUstream *made, const void *arguments) {
    const struct wanted *wanted = arguments;
    return DRIVER(cuGreenCtxStreamCreate, made, wanted->green, wanted->flags, wanted->priority);
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
