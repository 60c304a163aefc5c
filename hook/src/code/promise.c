/* SPDX-License-Identifier: Apache-2.0 */
#include "code/promise.h"

#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "scheduler/account.h"
#include "tables/registry.h"

/* In place of the driver's call that takes the bytes, which is the program's own. */
static CUresult promise_attempt_room(void *argument) {
    const struct charge *charge = argument;
    size_t unused, total;
    CUresult result = DRIVER(cuMemGetInfo_v2, &unused, &total);
    return result == CUDA_SUCCESS && unused < charge->size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult promise_make(const struct promise *promise, const char *call, uint64_t size) {
    struct charge charge = {.call = call, .device = promise->device, .current = true};
    CUresult result = charge_open(&charge, size);
    if (result != CUDA_SUCCESS) return result;
    if (charge.settling > 0) (void)charge_call_when_settled(&charge, promise_attempt_room, &charge);
    account_add_context((uint32_t)promise->device, size);
    if (promises_add(promise, size)) return CUDA_SUCCESS;
    growth_give_promised(promise->device, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void promise_withdraw(const struct promise *promise, uint64_t size) {
    growth_give_promised(promise->device, promises_take_back(promise, size));
}

void promise_end(uint64_t owner) {
    uint64_t sizes[CONVGPU_MAX_DEVICES] = {0};
    promises_forget_owner(owner, sizes);
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++)
        growth_give_promised(device, sizes[device]);
}

/* Gives back by itself: it was counted as the contexts'. */
static void promise_drop(CUcontext context, uint64_t *given) {
    uint64_t sizes[CONVGPU_MAX_DEVICES] = {0};
    (void)given;
    promises_forget_context(context, sizes);
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++)
        growth_give_promised(device, sizes[device]);
}

/* For promises_enumerate(). */
static void promise_show(const struct promise *promise, uint64_t size, void *argument) {
    static const char *const calls[] = {
        [PROMISE_STACKS] = "stacks",
        [PROMISE_PRINTF] = "printf",
        [PROMISE_HEAP] = "heap",
        [PROMISE_VARIABLES] = "variables",
        [PROMISE_GRAPHS] = "graphs",
        [PROMISE_LAUNCHES] = "pending launches",
        [PROMISE_DRIVER_CODE] = "driver's code",
    };
    const struct registry_visitor *visitor = argument;
    uint64_t address = promise->owner ? promise->owner : (uint64_t)(uintptr_t)promise->context;
    visitor->visit(
        &(struct live_allocation){"promised", promise->device, address, size, calls[promise->kind], 0},
        visitor->argument);
}

static void promise_enumerate(registry_visit *visit, void *argument) {
    promises_enumerate(promise_show, &(struct registry_visitor){visit, argument});
}
REGISTER_FAMILY(promise, .drop = promise_drop, .enumerate = promise_enumerate);
