/* SPDX-License-Identifier: Apache-2.0
 *
 * Primary contexts, and what all contexts have in common.
 *
 * Locks of a device: `creating`, held by whoever creates a context there, also while it is paused, so that
 * the contexts' total is corrected by one thread at a time; and `state`, which guards the primary context,
 * taken inside `creating` and never held while paused by the scheduler (though while the driver settles), so
 * that a release or a destroy (which may be what ends the pause) never waits for a paused creation. Around
 * the end of a context stands drain_lock() (gate/drain.h), taken before `state`.
 */
#include "calls/context.h"

#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "base/coarse_clock.h"
#include "functions/functions.h"
#include "gate/drain.h"
#include "mapped/page_tables.h"
#include "scheduler/account.h"
#include "tables/registry.h"

#include <pthread.h>
#include <string.h>

struct device_contexts {
    pthread_mutex_t creating;
    pthread_mutex_t state;
    bool charged; /* the primary context is active and charged with `charge` */
    uint64_t charge;
    CUcontext primary;
    uint32_t made; /* seconds of coarse_clock.h */
};

static struct device_contexts devices[CONVGPU_MAX_DEVICES] = {
    [0 ... CONVGPU_MAX_DEVICES - 1] = {.creating = PTHREAD_MUTEX_INITIALIZER,
                                       .state = PTHREAD_MUTEX_INITIALIZER}};

static bool is_active(CUdevice ordinal) {
    unsigned flags;
    int active = 0;
    return DRIVER(cuDevicePrimaryCtxGetState, ordinal, &flags, &active) == CUDA_SUCCESS && active;
}

void context_give(int device, uint64_t size) {
    account_remove_context((uint32_t)device, size);
    headroom_give(device, size);
}

void context_give_ended(int device, uint64_t size) {
    context_give(device, size);
    growth_context_ended(device);
    page_tables_settle();
    functions_end_last();
}

/* Creates what is charged; `state` is taken around the driver's call if `primary`. */
static CUresult context_create_charged(struct creation *creation, struct device_contexts *primary) {
    int device = creation->charge.device;
    if (primary) pthread_mutex_lock(&primary->state);
    CUresult result = charge_call_when_settled(&creation->charge, creation->attempt, creation);
    if (result == CUDA_SUCCESS) {
        account_add_context((uint32_t)device, creation->charge.size);
        growth_context_made(device);
        /* Before another thread gets the context: kernels of libraries have one form more. */
        device_context_changed(creation->context);
        functions_forget();
    }
    if (result == CUDA_SUCCESS && primary) {
        primary->charged = true;
        primary->made = coarse_clock_read();
        primary->charge = creation->charge.size;
        primary->primary = creation->context;
    }
    if (primary) pthread_mutex_unlock(&primary->state);
    if (result != CUDA_SUCCESS) headroom_give(device, creation->charge.size);
    return result;
}

/* What contexts grew is not measured for a context: it is corrected. */
CUresult context_create(int device, struct creation *creation, struct device_contexts *primary) {
    int round = 0;
    creation->charge.device = device;
    creation->charge.context = true;
    CUresult result = headroom_add(&creation->charge, account_context_size((uint32_t)device), false);
    if (result != CUDA_SUCCESS) return result;
    do result = context_create_charged(creation, primary);
    while (charge_again(&creation->charge, result, round++));
    page_tables_settle(); /* before the first one all devices may have been charged */
    return result;
}

void context_drop(CUcontext context) {
    uint64_t sizes[CONVGPU_MAX_DEVICES] = {0};
    registry_drop(context, sizes);
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++)
        if (sizes[device] > 0) headroom_give(device, sizes[device]);
}

/* Calls `end` (release or reset), which may destroy the primary context, and gives back what went with it. */
static CUresult end_primary(CUdevice ordinal, CUresult (*end)(CUdevice)) {
    int device = device_of_ordinal(ordinal);
    if (device < 0) return end(ordinal);
    struct device_contexts *contexts = &devices[device];
    uint64_t charge = 0;
    drain_lock();
    pthread_mutex_lock(&contexts->state);
    CUcontext primary = contexts->charged ? contexts->primary : NULL;
    if (primary) registry_mark(primary);
    CUresult result = end(ordinal);
    bool ended = primary && result == CUDA_SUCCESS && !is_active(ordinal);
    if (ended) {
        charge = contexts->charge;
        contexts->charged = false;
        contexts->charge = 0;
        contexts->primary = NULL;
    } else if (primary) {
        registry_unmark(primary);
    }
    pthread_mutex_unlock(&contexts->state);
    drain_unlock();
    if (!ended) return result;
    device_context_changed(primary);
    context_drop(primary);
    context_give_ended(device, charge);
    return result;
}

static CUresult driver_release(CUdevice ordinal) {
    return driver.cuDevicePrimaryCtxRelease_v2 ? DRIVER(cuDevicePrimaryCtxRelease_v2, ordinal)
                                               : DRIVER(cuDevicePrimaryCtxRelease, ordinal);
}

static CUresult driver_release_v1(CUdevice ordinal) {
    return DRIVER(cuDevicePrimaryCtxRelease, ordinal);
}

static CUresult driver_reset(CUdevice ordinal) {
    return DRIVER(cuDevicePrimaryCtxReset_v2, ordinal);
}

static CUresult driver_reset_v1(CUdevice ordinal) {
    return DRIVER(cuDevicePrimaryCtxReset, ordinal);
}

CUresult hooked_cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    return end_primary(ordinal, driver_release_v1);
}

CUresult hooked_cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    return end_primary(ordinal, driver_release);
}

CUresult hooked_cuDevicePrimaryCtxReset(CUdevice ordinal) {
    return end_primary(ordinal, driver_reset_v1);
}

CUresult hooked_cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    return end_primary(ordinal, driver_reset);
}

static CUresult context_attempt_retain(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuDevicePrimaryCtxRetain, &creation->context, creation->ordinal);
}

/* Retains a primary context that is active and charged. False when it is not. */
static bool retain_active(struct device_contexts *contexts, struct creation *creation, CUresult *result) {
    pthread_mutex_lock(&contexts->state);
    bool active = contexts->charged && is_active(creation->ordinal);
    if (active) *result = context_attempt_retain(creation);
    pthread_mutex_unlock(&contexts->state);
    return active;
}

static CUresult create_primary(int device, struct creation *creation) {
    struct device_contexts *contexts = &devices[device];
    CUresult result;
    uint64_t more, less;
    if (retain_active(contexts, creation, &result)) return result; /* another thread was first */
    result = context_create(device, creation, contexts);
    if (result != CUDA_SUCCESS) return result;
    result = growth_correct(device, creation->charge.call, creation->charge.size, &more, &less);
    pthread_mutex_lock(&contexts->state);
    bool lives = contexts->charged; /* else another thread has released it, and given back its first charge */
    if (lives) contexts->charge += more - less;
    pthread_mutex_unlock(&contexts->state);
    context_give(device, lives ? less : more);
    if (result != CUDA_SUCCESS) end_primary(creation->ordinal, driver_release);
    return result;
}

CUresult context_refuse(struct creation *creation) {
    unsigned flags;
    int active;
    if (DRIVER(cuDevicePrimaryCtxGetState, creation->ordinal, &flags, &active) != CUDA_SUCCESS)
        return creation->attempt(creation);
    device_refuse(creation->ordinal);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hooked_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal) {
    struct creation creation = {
        .charge.call = "cuDevicePrimaryCtxRetain", .attempt = context_attempt_retain, .ordinal = ordinal};
    CUresult result;
    int device = device_of_ordinal(ordinal);
    if (device < 0) return context_refuse(&creation);
    if (!retain_active(&devices[device], &creation, &result)) {
        pthread_mutex_lock(&devices[device].creating);
        result = create_primary(device, &creation);
        pthread_mutex_unlock(&devices[device].creating);
    }
    if (result == CUDA_SUCCESS) *context = creation.context;
    return result;
}

void context_lock_creation(int device) {
    pthread_mutex_lock(&devices[device].creating);
}

void context_unlock_creation(int device) {
    pthread_mutex_unlock(&devices[device].creating);
}

static void context_enumerate(registry_visit *visit, void *argument) {
    for (int device = 0; device < (int)account_devices(); device++) {
        struct device_contexts *contexts = &devices[device];
        pthread_mutex_lock(&contexts->state);
        if (contexts->charged)
            visit(&(struct live_allocation){REGISTRY_CONTEXT, device, (uint64_t)(uintptr_t)contexts->primary,
                                            contexts->charge, "cuDevicePrimaryCtxRetain", contexts->made},
                  argument);
        pthread_mutex_unlock(&contexts->state);
    }
}

static void context_reset(void) {
    for (uint32_t device = 0; device < CONVGPU_MAX_DEVICES; device++)
        devices[device] = (struct device_contexts){.creating = PTHREAD_MUTEX_INITIALIZER,
                                                   .state = PTHREAD_MUTEX_INITIALIZER};
}
REGISTER_FAMILY(context, .reset = context_reset, .enumerate = context_enumerate);
