/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of a context. A larger stack is taken at once; the heap of malloc and the buffer of printf when
 * a kernel first needs them, so they are promised; what else there is, is measured, and set back if it cannot
 * be had.
 */
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "code/functions.h"
#include "code/promise.h"
#include "code/sample.h"
#include "code/stacks.h"

static CUresult set_promised(const struct promise *promise, int limit, size_t old, size_t size) {
    uint64_t more = size > old ? size - old : 0;
    CUresult result = more > 0 ? promise_make(promise, "cuCtxSetLimit", more) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) return result;
    result = DRIVER(cuCtxSetLimit, limit, size);
    if (result != CUDA_SUCCESS) promise_withdraw(promise, more);
    if (result == CUDA_SUCCESS && size < old) promise_withdraw(promise, old - size);
    return result;
}

static CUresult set_measured(struct sample *before, int limit, size_t old, size_t size) {
    CUresult result = DRIVER(cuCtxSetLimit, limit, size);
    if (result != CUDA_SUCCESS || sample_charge_fall(before, "cuCtxSetLimit") == CUDA_SUCCESS) return result;
    DRIVER(cuCtxSetLimit, limit, old);
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
        return set_promised(&promise, limit, old, size);
    default:
        return set_measured(&before, limit, old, size);
    }
}
