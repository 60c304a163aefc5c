/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of a context. A larger stack is taken at once; the heap of malloc, the buffer of printf and what
 * the device runtime keeps for pending launches when a kernel first needs them, so they are promised; what
 * else there is, is measured, and set back if it cannot be had.
 */
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "base/fork_reset.h"
#include "code/driver_code.h"
#include "code/promise.h"
#include "code/sample.h"
#include "code/stacks.h"
#include "functions/functions.h"

#include <pthread.h>

/* Around the change of a promised limit; never held while paused. */
static pthread_mutex_t setting = PTHREAD_MUTEX_INITIALIZER;

static uint64_t bytes(int limit, size_t size) {
    return limit == CU_LIMIT_PENDING_LAUNCHES ? driver_code_launches(size) : size;
}

/* Bytes that one value of the limit needs more than another. */
static uint64_t beyond(int limit, size_t size, size_t other) {
    uint64_t needed = bytes(limit, size), had = bytes(limit, other);
    return needed > had ? needed - had : 0;
}

/* Bytes that this limit needs beyond the one that is set. */
static uint64_t missing(int limit, size_t size) {
    size_t now = 0;
    (void)DRIVER(cuCtxGetLimit, &now, limit);
    return beyond(limit, size, now);
}

/* Sets the limit if what was promised for it is enough still: another thread may have set it meanwhile.
 * *spare: bytes of promises that are not needed any more. */
static bool set_if_enough(int limit, size_t size, uint64_t promised, CUresult *result, uint64_t *spare) {
    size_t now = 0, set = size;
    pthread_mutex_lock(&setting);
    (void)DRIVER(cuCtxGetLimit, &now, limit);
    bool enough = beyond(limit, size, now) <= promised;
    if (enough) *result = DRIVER(cuCtxSetLimit, limit, size);
    if (enough && *result == CUDA_SUCCESS) (void)DRIVER(cuCtxGetLimit, &set, limit);
    pthread_mutex_unlock(&setting);
    if (!enough) return false;
    if (set > size) set = size; /* the driver makes it smaller where it has a most of its own */
    *spare =
        *result != CUDA_SUCCESS ? promised : promised - beyond(limit, set, now) + beyond(limit, now, set);
    return true;
}

/* A smaller limit may be what a larger one waits for: nothing is held while it does. */
static CUresult set_promised(const struct promise *promise, int limit, size_t size) {
    uint64_t promised = 0, spare = 0;
    CUresult result = CUDA_SUCCESS;
    do {
        uint64_t needed = missing(limit, size);
        if (needed <= promised) continue;
        result = promise_make(promise, "cuCtxSetLimit", needed - promised);
        if (result == CUDA_SUCCESS) promised = needed;
    } while (result == CUDA_SUCCESS && !set_if_enough(limit, size, promised, &result, &spare));
    promise_withdraw(promise, result == CUDA_SUCCESS ? spare : promised);
    return result;
}

static CUresult set_measured(struct sample *before, int limit, size_t old, size_t size) {
    CUresult result = DRIVER(cuCtxSetLimit, limit, size);
    if (result != CUDA_SUCCESS || sample_charge_fall(before, "cuCtxSetLimit") == CUDA_SUCCESS) return result;
    DRIVER(cuCtxSetLimit, limit, old);
    growth_fell(before->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Where the device runtime is there, it takes at once what is promised to it. */
static CUresult set_launches(struct sample *before, size_t old, size_t size) {
    const struct promise promise = {PROMISE_LAUNCHES, before->device, before->context, 0};
    CUresult result = set_promised(&promise, CU_LIMIT_PENDING_LAUNCHES, size);
    if (result != CUDA_SUCCESS) return result;
    sample_see_rise(before);
    if (size <= old) return CUDA_SUCCESS; /* what else is owed is no reason to keep it */
    result = sample_charge_fall(before, "cuCtxSetLimit");
    if (result == CUDA_SUCCESS) return result;
    (void)set_promised(&promise, CU_LIMIT_PENDING_LAUNCHES, old);
    growth_fell(before->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hooked_cuCtxSetLimit(int limit, size_t size) {
    struct sample before = sample_take();
    size_t old = 0;
    if (before.device < 0 || DRIVER(cuCtxGetLimit, &old, limit) != CUDA_SUCCESS)
        return DRIVER(cuCtxSetLimit, limit, size);
    struct promise promise = {PROMISE_PRINTF, before.device, before.context, 0};
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) promise.kind = PROMISE_HEAP;
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        return stacks_set_limit(before.device, before.context, size);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return set_promised(&promise, limit, size);
    case CU_LIMIT_PENDING_LAUNCHES:
        return set_launches(&before, old, size);
    default:
        return set_measured(&before, limit, old, size);
    }
}

static void limits_reset(void) {
    setting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
RESET_IN_CHILD(limits_reset);
