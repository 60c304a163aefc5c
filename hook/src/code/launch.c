/* SPDX-License-Identifier: Apache-2.0 */
#include "code/launch.h"

#include "accounting/device.h"
#include "code/libraries.h"
#include "code/stacks.h"
#include "functions/functions.h"
#include "functions/homes.h"
#include "functions/parameters.h"
#include "gate/captures.h"
#include "gate/gate.h"
#include "scheduler/session.h"

enum { ATTRIBUTE_LOCAL_SIZE = 3 };

/* A stream's own context; NULL for the default streams, which are of the current one. */
static CUcontext context_of(word stream) {
    CUcontext context = NULL;
    if (stream <= CU_STREAM_PER_THREAD) return NULL;
    return DRIVER(cuStreamGetCtx, (CUstream)(uintptr_t)stream, &context) == CUDA_SUCCESS ? context : NULL;
}

/* Bytes that a thread of it needs; 0 when the driver does not tell. */
static uint64_t local_size(word function, uint64_t library) {
    void *handle = (void *)(uintptr_t)function;
    CUdevice ordinal;
    int size = 0;
    if (library == 0)
        DRIVER(cuFuncGetAttribute, &size, ATTRIBUTE_LOCAL_SIZE, handle);
    else if (DRIVER(cuCtxGetDevice, &ordinal) == CUDA_SUCCESS)
        DRIVER(cuKernelGetAttribute, &size, ATTRIBUTE_LOCAL_SIZE, handle, ordinal);
    return size > 0 ? (uint64_t)size : 0;
}

/* Whether its library is there. In a capture nothing is loaded: it may forbid that. */
static bool load_code(word function, uint64_t library) {
    void *handle = (void *)(uintptr_t)function;
    if (captures_count() > 0) return false;
    if (library != 0 && DRIVER(cuKernelGetFunction, &handle, handle) != CUDA_SUCCESS) return false;
    DRIVER(cuFuncLoad, handle);
    return true;
}

/* The launch's context is current. Whoever asks about a kernel has its library loaded: first of all that is
 * promised. */
static CUresult charge_known(const struct sample *in, word function, uint64_t library) {
    CUresult result = libraries_promise(in->device, in->context, "a launch", library);
    if (result != CUDA_SUCCESS) return result;
    (void)parameters_of(function, library != 0);
    return stacks_raise(in->device, in->context, "a launch", local_size(function, library));
}

static CUresult look(struct launch *launch) {
    uint64_t library = functions_library(launch->function);
    launch->stacks = stacks_level(launch->before.context);
    CUresult result = charge_known(&launch->before, launch->function, library);
    if (result != CUDA_SUCCESS) return result;
    launch->raised = stacks_level(launch->before.context);
    bool there = load_code(launch->function, library);
    result = sample_charge_fall(&launch->before, "a launch");
    if (there) libraries_settle(&launch->before, library);
    return result;
}

/* It is not launched, or the driver refused it, for its shape or shared memory: it has taken no stacks. */
static void take_back(const struct launch *launch) {
    const struct sample *in = &launch->before;
    if (in->device < 0 || launch->raised <= launch->stacks || sample_fell(in)) return;
    stacks_take_back(in->device, in->context, launch->stacks, launch->raised);
}

/* Whether it was looked at in the current context. */
static bool is_known(word function) {
    CUcontext context;
    int device;
    return device_current(&context, &device) == CUDA_SUCCESS && functions_know(function, context);
}

CUresult launch_begin(struct launch *launch, word function, word stream) {
    *launch = (struct launch){.function = function, .before.device = DEVICE_UNKNOWN};
    if (!driver_load() || inside_driver || !session_is_open() || function == 0) return CUDA_SUCCESS;
    launch->pushed = device_push(context_of(stream));
    launch->generation = functions_generation();
    CUresult result = CUDA_SUCCESS;
    if (!is_known(function)) {
        if (!gate_is_unused()) gate_wait_open(); /* a look takes memory */
        launch->before = sample_take();
        if (launch->before.device >= 0) result = look(launch);
    }
    if (result != CUDA_SUCCESS) take_back(launch);
    if (result != CUDA_SUCCESS || launch->before.device < 0) {
        device_pop(launch->pushed);
        launch->before.device = DEVICE_UNKNOWN;
    }
    return result;
}

void launch_end(struct launch *launch, CUresult result) {
    if (launch->before.device < 0) return;
    if (result != CUDA_SUCCESS) take_back(launch);
    (void)sample_charge_fall(&launch->before, "a launch");
    if (result == CUDA_SUCCESS) functions_learn(launch->function, launch->before.context, launch->generation);
    device_pop(launch->pushed);
}

CUresult launch_record(word function, CUcontext context) {
    CUresult result = CUDA_SUCCESS;
    if (function == 0 || !session_is_open()) return result;
    bool pushed = device_push(context ? context : homes_find((void *)(uintptr_t)function));
    struct sample in = sample_take();
    if (in.device >= 0 && !functions_know(function, in.context)) {
        result = charge_known(&in, function, functions_library(function));
    }
    device_pop(pushed);
    return result;
}

CUresult launch_begin_several(const struct device_launch *launches, unsigned count) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned index = 0; launches && index < count && result == CUDA_SUCCESS; index++) {
        word function = (word)(uintptr_t)launches[index].function;
        result = launch_record(function, context_of((word)(uintptr_t)launches[index].stream));
    }
    return result;
}
