/* SPDX-License-Identifier: Apache-2.0
 *
 * The contexts of cuCtxCreate, and of its forms for OpenGL and VDPAU. drain_lock() is held around what counts
 * who uses one, and around its end.
 */
#include "accounting/allocations.h"
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "calls/context.h"
#include "gate/drain.h"
#include "tables/registry.h"

static struct allocations created = ALLOCATIONS_INITIALIZER; /* by handle */

static uint64_t handle(CUcontext context) {
    return (uint64_t)(uintptr_t)context;
}

/* Lets go of one attachment of a context (`value` of its entry counts them); drain_lock() is held. False: it
 * has none, and ends with this call. A primary context never ends so (driver 580). */
static bool let_go(CUcontext context, CUresult *result) {
    struct allocation entry = {0}, replaced;
    bool ours = allocations_find(&created, handle(context), &entry);
    if (ours && entry.value == 0) return false;
    *result = DRIVER(cuCtxDetach, context);
    entry.value--;
    if (ours && *result == CUDA_SUCCESS) (void)allocations_insert(&created, entry, &replaced);
    return true;
}

/* Calls `end` and gives back what was charged for the context and in it. */
static CUresult end_context(CUcontext context, CUresult (*end)(CUcontext), bool detaches) {
    struct allocation entry, replaced;
    CUresult result;
    if (!context) return end(context);
    drain_lock();
    if (detaches && let_go(context, &result)) {
        drain_unlock();
        return result;
    }
    bool ours = allocations_remove(&created, handle(context), &entry);
    registry_mark(context);
    result = end(context);
    drain_unlock();
    if (result == CUDA_SUCCESS) {
        device_context_changed(context);
        context_drop(context);
        if (ours) context_give_ended((int)entry.device, entry.size);
    } else {
        registry_unmark(context);
        if (ours) (void)allocations_insert(&created, entry, &replaced);
    }
    return result;
}

static CUresult driver_destroy_v1(CUcontext context) {
    return DRIVER(cuCtxDestroy, context);
}

static CUresult driver_destroy(CUcontext context) {
    return DRIVER(cuCtxDestroy_v2, context);
}

static CUresult driver_detach(CUcontext context) {
    return DRIVER(cuCtxDetach, context);
}

CUresult hooked_cuCtxDestroy(CUcontext context) {
    return end_context(context, driver_destroy_v1, false);
}

CUresult hooked_cuCtxDestroy_v2(CUcontext context) {
    return end_context(context, driver_destroy, false);
}

CUresult hooked_cuCtxDetach(CUcontext context) {
    return end_context(context, driver_detach, true);
}

CUresult hooked_cuCtxAttach(CUcontext *context, unsigned flags) {
    struct allocation entry, replaced;
    drain_lock();
    CUresult result = DRIVER(cuCtxAttach, context, flags);
    if (result == CUDA_SUCCESS && allocations_find(&created, handle(*context), &entry)) {
        entry.value++;
        (void)allocations_insert(&created, entry, &replaced);
    }
    drain_unlock();
    return result;
}

/* `creating` is held. Until the program has the handle, no other thread can destroy it. */
static CUresult context_create_entered(int device, struct creation *creation) {
    struct allocation replaced = {0};
    uint64_t more, less;
    CUresult result = context_create(device, creation, NULL);
    if (result != CUDA_SUCCESS) return result;
    result = growth_correct(device, creation->charge.call, creation->charge.size, &more, &less);
    creation->charge.size += more - less;
    context_give(device, less);
    struct allocation entry = {
        .address = handle(creation->context), .size = creation->charge.size, .device = (uint64_t)device};
    if (result == CUDA_SUCCESS && !allocations_insert(&created, entry, &replaced))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        driver_destroy(creation->context);
        context_give_ended(device, creation->charge.size);
    }
    return result;
}

static CUresult context_create_for(CUcontext *context, struct creation *creation) {
    int device = device_of_ordinal(creation->ordinal);
    if (device < 0) return context_refuse(creation);
    context_lock_creation(device);
    CUresult result = context_create_entered(device, creation);
    context_unlock_creation(device);
    if (result == CUDA_SUCCESS) *context = creation->context;
    return result;
}

static CUresult context_attempt_v2(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuCtxCreate_v2, &creation->context, creation->flags, creation->ordinal);
}

CUresult hooked_cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal) {
    struct creation creation = {
        .charge.call = "cuCtxCreate", .attempt = context_attempt_v2, .flags = flags, .ordinal = ordinal};
    return context_create_for(context, &creation);
}

static CUresult context_attempt_v1(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuCtxCreate, &creation->context, creation->flags, creation->ordinal);
}

CUresult hooked_cuCtxCreate(CUcontext *context, unsigned flags, CUdevice ordinal) {
    struct creation creation = {
        .charge.call = "cuCtxCreate", .attempt = context_attempt_v1, .flags = flags, .ordinal = ordinal};
    return context_create_for(context, &creation);
}

static CUresult context_attempt_v3(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuCtxCreate_v3, &creation->context, creation->parameters, creation->count, creation->flags,
                  creation->ordinal);
}

CUresult hooked_cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags,
                               CUdevice ordinal) {
    struct creation creation = {.charge.call = "cuCtxCreate",
                                .attempt = context_attempt_v3,
                                .parameters = affinity,
                                .count = count,
                                .flags = flags,
                                .ordinal = ordinal};
    return context_create_for(context, &creation);
}

static CUresult context_attempt_v4(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuCtxCreate_v4, &creation->context, creation->parameters, creation->flags,
                  creation->ordinal);
}

CUresult hooked_cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice ordinal) {
    struct creation creation = {.charge.call = "cuCtxCreate",
                                .attempt = context_attempt_v4,
                                .parameters = parameters,
                                .flags = flags,
                                .ordinal = ordinal};
    return context_create_for(context, &creation);
}

/* With OpenGL. */
static CUresult context_attempt_gl(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuGLCtxCreate_v2, &creation->context, creation->flags, creation->ordinal);
}

CUresult hooked_cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal) {
    struct creation creation = {
        .charge.call = "cuGLCtxCreate", .attempt = context_attempt_gl, .flags = flags, .ordinal = ordinal};
    return context_create_for(context, &creation);
}

static CUresult context_attempt_gl_v1(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuGLCtxCreate, &creation->context, creation->flags, creation->ordinal);
}

CUresult hooked_cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice ordinal) {
    struct creation creation = {
        .charge.call = "cuGLCtxCreate", .attempt = context_attempt_gl_v1, .flags = flags, .ordinal = ordinal};
    return context_create_for(context, &creation);
}

/* With VDPAU: its device (`count`), and where its functions are. */
static CUresult context_attempt_vdpau(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuVDPAUCtxCreate_v2, &creation->context, creation->flags, creation->ordinal,
                  (uint32_t)creation->count, creation->parameters);
}

static CUresult context_attempt_vdpau_v1(void *arguments) {
    struct creation *creation = arguments;
    return DRIVER(cuVDPAUCtxCreate, &creation->context, creation->flags, creation->ordinal,
                  (uint32_t)creation->count, creation->parameters);
}

static CUresult create_for_vdpau(CUcontext *context, struct creation creation, charge_attempt *attempt) {
    creation.charge.call = "cuVDPAUCtxCreate";
    creation.attempt = attempt;
    return context_create_for(context, &creation);
}

CUresult hooked_cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal, uint32_t shown,
                                    void *lookup) {
    struct creation creation = {
        .parameters = lookup, .count = (int)shown, .flags = flags, .ordinal = ordinal};
    return create_for_vdpau(context, creation, context_attempt_vdpau);
}

CUresult hooked_cuVDPAUCtxCreate(CUcontext *context, unsigned flags, CUdevice ordinal, uint32_t shown,
                                 void *lookup) {
    struct creation creation = {
        .parameters = lookup, .count = (int)shown, .flags = flags, .ordinal = ordinal};
    return create_for_vdpau(context, creation, context_attempt_vdpau_v1);
}

/* For allocations_visit(). */
static void context_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    visitor->visit(&(struct live_allocation){REGISTRY_CONTEXT, (int)entry->device, entry->address,
                                             entry->size, "cuCtxCreate", entry->made},
                   visitor->argument);
}

static void created_context_enumerate(registry_visit *visit, void *argument) {
    allocations_visit(&created, context_show, &(struct registry_visitor){visit, argument});
}

static void created_context_reset(void) {
    allocations_reset(&created);
}
REGISTER_FAMILY(created_context, .reset = created_context_reset, .enumerate = created_context_enumerate);
