/* SPDX-License-Identifier: Apache-2.0
 *
 * `raising` of a context is held while a larger stack is charged, which may pause: a second thread must not
 * take it for had before it is. What frees memory elsewhere does not take it.
 */
#include "code/stacks.h"

#include "accounting/allocations.h"
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "base/fork_reset.h"
#include "code/promise.h"
#include "functions/functions.h"
#include "scheduler/account.h"
#include "tables/registry.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_THREADS = 39, LOCKS = 512 };

static struct {
    _Atomic(CUcontext) context; /* whose it is for ever, for another one may get the handle; NULL: nobody's */
    pthread_mutex_t raising;
} locks[LOCKS] = {[0 ... LOCKS - 1] = {.raising = PTHREAD_MUTEX_INITIALIZER}};
static struct allocations levels = ALLOCATIONS_INITIALIZER; /* by context; `value`: bytes a thread */

/* Its own: who is paused for one context must not hold up who gives back in another. Once all are somebody's,
 * several contexts may have the same. */
static pthread_mutex_t *lock_of(CUcontext context) {
    for (int each = 0; each < LOCKS; each++) {
        CUcontext its = NULL;
        if (atomic_compare_exchange_strong(&locks[each].context, &its, context) || its == context)
            return &locks[each].raising;
    }
    return &locks[(uint64_t)(uintptr_t)context * UINT64_C(0x9e3779b97f4a7c15) >> 55].raising;
}

/* Threads that the current device can run at a time. 0: the driver does not tell. */
static uint64_t threads(void) {
    CUdevice ordinal;
    int multiprocessors = 0, each = 0;
    if (DRIVER(cuCtxGetDevice, &ordinal) != CUDA_SUCCESS) return 0;
    DRIVER(cuDeviceGetAttribute, &multiprocessors, ATTRIBUTE_MULTIPROCESSORS, ordinal);
    DRIVER(cuDeviceGetAttribute, &each, ATTRIBUTE_THREADS, ordinal);
    return multiprocessors > 0 && each > 0 ? (uint64_t)multiprocessors * (uint64_t)each : 0;
}

static uint64_t bytes(uint64_t each) {
    uint64_t size;
    return __builtin_mul_overflow(each, threads(), &size) ? UINT64_MAX : size;
}

static uint64_t read_limit(void) {
    size_t limit = 0;
    (void)DRIVER(cuCtxGetLimit, &limit, CU_LIMIT_STACK_SIZE);
    return limit;
}

uint64_t stacks_level(CUcontext context) {
    struct allocation entry;
    uint64_t limit = read_limit();
    bool raised = allocations_find(&levels, (uint64_t)(uintptr_t)context, &entry);
    return raised && entry.value > limit ? entry.value : limit;
}

static void set_level(CUcontext context, uint64_t each) {
    struct allocation replaced, entry = {.address = (uint64_t)(uintptr_t)context, .value = each};
    (void)allocations_insert(&levels, entry, &replaced);
}

static CUresult raise_level(int device, CUcontext context, const char *call, uint64_t size) {
    uint64_t now = stacks_level(context);
    if (size <= now) return CUDA_SUCCESS;
    struct promise promise = {.kind = PROMISE_STACKS, .device = device, .context = context};
    CUresult result = promise_make(&promise, call, bytes(size - now));
    if (result == CUDA_SUCCESS) set_level(context, size);
    return result;
}

CUresult stacks_raise(int device, CUcontext context, const char *call, uint64_t size) {
    if (size <= stacks_level(context)) return CUDA_SUCCESS;
    pthread_mutex_lock(lock_of(context));
    CUresult result = raise_level(device, context, call, size);
    pthread_mutex_unlock(lock_of(context));
    return result;
}

/* Not if another one has raised it further meanwhile. */
void stacks_take_back(int device, CUcontext context, uint64_t before, uint64_t raised) {
    struct promise promise = {.kind = PROMISE_STACKS, .device = device, .context = context};
    if (raised <= before) return;
    pthread_mutex_lock(lock_of(context));
    if (stacks_level(context) == raised) {
        promise_withdraw(&promise, bytes(raised - before));
        set_level(context, before);
    }
    pthread_mutex_unlock(lock_of(context));
}

static CUresult stacks_attempt(void *size) {
    return DRIVER(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, *(size_t *)size);
}

/* Growth is entered with each try: a context that ends in between takes it along. */
static CUresult take(int device, size_t size, uint64_t more) {
    struct charge charge = {.call = "cuCtxSetLimit", .device = device, .current = true};
    CUresult result = charge_open(&charge, more);
    if (result != CUDA_SUCCESS) return result;
    for (int round = 0;; round++) {
        growth_add(device, more);
        result = charge_call_when_settled(&charge, stacks_attempt, &size);
        if (result == CUDA_SUCCESS) return result;
        growth_give(device, more);
        if (!charge_again(&charge, result, round)) return result;
    }
}

/* What a kernel had made larger than the limit (`kept`) may stay: then the driver's free memory did not grow.
 */
static void lower(int device, CUcontext context, uint64_t before, size_t size, bool kept, size_t unused) {
    size_t now = 0, total;
    uint64_t less = bytes(before - size);
    bool seen = DRIVER(cuMemGetInfo_v2, &now, &total) == CUDA_SUCCESS;
    if (kept && seen && now < unused + less / 2) return;
    struct promise promise = {.kind = PROMISE_STACKS, .device = device, .context = context};
    uint64_t promised = promises_take_back(&promise, less);
    growth_give_promised(device, promised);
    growth_give(device, less - promised);
    set_level(context, size);
}

static CUresult set_limit(int device, CUcontext context, size_t size) {
    uint64_t before = stacks_level(context);
    bool kept = before > read_limit();
    size_t unused = 0, total;
    (void)DRIVER(cuMemGetInfo_v2, &unused, &total);
    CUresult result = take(device, size, size > before ? bytes(size - before) : 0);
    if (result == CUDA_SUCCESS && size > before) set_level(context, size);
    if (result == CUDA_SUCCESS && size < before) lower(device, context, before, size, kept, unused);
    return result;
}

/* Forgotten before, too: a launch amid it could raise what was lowered, and is looked at for that. */
CUresult stacks_set_limit(int device, CUcontext context, size_t size) {
    functions_forget();
    pthread_mutex_lock(lock_of(context));
    CUresult result = set_limit(device, context, size);
    pthread_mutex_unlock(lock_of(context));
    functions_forget();
    return result;
}

static void stacks_drop(CUcontext context, uint64_t *sizes) {
    struct allocation removed;
    (void)sizes;
    (void)allocations_remove(&levels, (uint64_t)(uintptr_t)context, &removed);
}

static void stacks_reset(void) {
    for (int each = 0; each < LOCKS; each++) {
        locks[each].context = NULL;
        locks[each].raising = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    }
    allocations_reset(&levels);
}
REGISTER_FAMILY(stacks, .drop = stacks_drop, .reset = stacks_reset);
