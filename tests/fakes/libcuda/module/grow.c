/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a context grow beside its modules: what it keeps for streams and executable graphs, stacks, the
 * heap of malloc, the buffer of printf, the driver's own code (code/driver_code.h of the hook). Stacks are
 * of one size for all threads that the device can run at a time; a launch that needs more than the limit
 * takes the same product as the limit would, until the context ends or the limit is lowered below (decision
 * 16: seen on an H200). The heap and the buffer come with the first launch that uses them, at the size that
 * the limit has then.
 */
#include "libcuda/context/stream_api.h"
#include "libcuda/memory/pool.h"
#include "libcuda/module/module.h"

#define FIRST_STACK    1024u
#define MULTIPROCESSOR 132u
#define THREADS        2048u
#define STEP           (UINT64_C(2) << 20) /* of what is kept for objects */

enum { LIMIT_STACK, LIMIT_PRINTF, LIMIT_HEAP, LIMIT_LAUNCHES = 4, LIMITS };
static const size_t first[LIMITS] = {FIRST_STACK, 8650752, 8388608, 0, 2048};

/* Of kernels that launch kernels: for each that may be pending, and how many those can be. */
#define LAUNCH        9399u
#define MOST_LAUNCHES 599186u

/* MiB of the driver's code that comes with the first code that calls one of these (seen on an H200, driver
 * 580.159.04: vprintf 64, __assertfail 92, malloc 138, and what launches 78 without the launches). */
static const struct {
    unsigned calls, size;
} pieces[] = {{CALLS_PRINT | CALLS_ASSERT, 2},
              {CALLS_PRINT | CALLS_ASSERT | CALLS_HEAP | CALLS_LAUNCH, 62},
              {CALLS_ASSERT | CALLS_HEAP | CALLS_LAUNCH, 16},
              {CALLS_ASSERT | CALLS_HEAP, 12},
              {CALLS_HEAP, 48}};

enum { ATTRIBUTE_LOCAL_SIZE = 3, ATTRIBUTES = 16 };

static size_t limit_of(const struct context *context, int limit) {
    return context->limit[limit] != 0 ? context->limit[limit] : first[limit];
}

/* driver.mutex held. */
static bool take(struct context *context, uint64_t size) {
    if (!device_take(context->device, size)) return false;
    context->grown += size;
    return true;
}

bool store_take(struct context *context, struct store *store, uint64_t size) {
    uint64_t used = store->used + size, missing = used > store->size ? used - store->size : 0;
    missing = (missing + STEP - 1) / STEP * STEP;
    if (!take(context, missing)) return false;
    store->size += missing;
    store->used = used;
    return true;
}

void store_give(struct store *store, uint64_t size) {
    store->used -= size <= store->used ? size : store->used; /* of an earlier life of the context */
}

/* Stacks of `each` bytes in place of those that are there. driver.mutex held. */
static bool resize_stacks(struct context *context, uint64_t each) {
    uint64_t before = context->stack > FIRST_STACK ? context->stack : FIRST_STACK;
    uint64_t after = each > FIRST_STACK ? each : FIRST_STACK, bytes = MULTIPROCESSOR * THREADS;
    if (after > before && !take(context, (after - before) * bytes)) return false;
    if (after < before) {
        context->grown -= (before - after) * bytes;
        device_give(context->device, (before - after) * bytes);
    }
    context->stack = after;
    return true;
}

static bool take_once(struct context *context, bool wanted, bool *taken, int limit) {
    if (!wanted || *taken) return true;
    *taken = take(context, limit_of(context, limit));
    return *taken;
}

static uint64_t pending_size(size_t launches) {
    return (launches * LAUNCH + STEP - 1) / STEP * STEP;
}

/* driver.mutex held. */
static bool resize_pending(struct context *context, size_t launches) {
    uint64_t after = pending_size(launches), before = context->pending;
    if (after > before && !take(context, after - before)) return false;
    if (after < before) {
        context->grown -= before - after;
        device_give(context->device, before - after);
    }
    context->pending = after;
    return true;
}

/* All of it or nothing. */
bool module_take_calls(struct module *module) {
    struct context *context = module->context;
    bool launches = (module->calls & ~context->calls & CALLS_LAUNCH) != 0;
    uint64_t pending = launches ? pending_size(limit_of(context, LIMIT_LAUNCHES)) : 0, size = pending;
    for (unsigned i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        bool there = (pieces[i].calls & context->calls) != 0, wanted = (pieces[i].calls & module->calls) != 0;
        if (wanted && !there) size += (uint64_t)pieces[i].size << 20;
    }
    if (!take(context, size)) return false;
    if (launches) context->pending = pending;
    context->calls |= module->calls;
    return true;
}

static bool grow(struct module *module, struct context *context) {
    bool grown = module_take(module, &module->variables) && module_take(module, &module->code);
    grown = grown && module_take_calls(module);
    if (grown && module->local > context->stack) grown = resize_stacks(context, module->local);
    grown = grown && take_once(context, module->heap, &context->heap_taken, LIMIT_HEAP);
    grown = grown && take_once(context, module->printf, &context->printf_taken, LIMIT_PRINTF);
    if (grown) atomic_store(&module->due, false);
    return grown;
}

/* Null: it is not of this context. */
static struct module *find(const struct module *handle, const struct context *context) {
    struct module *module = context->modules;
    while (module != NULL && module != handle) module = module->next;
    return module;
}

bool module_grow(const struct module *handle) {
    struct module *module = NULL;
    for (CUdevice device = 0; module == NULL && device < driver.device_count; device++)
        module = find(handle, &driver.primary[device]);
    for (struct context *context = driver.contexts; module == NULL && context != NULL;
         context = context->next)
        module = find(handle, context);
    return module == NULL ||
           grow(module, module->context); /* unloaded: the real driver's program would fail */
}

CUresult module_launch(struct function *function, CUstream handle) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct stream *stream = stream_named(handle);
    bool recorded = stream != NULL && stream->capture != NULL;
    bool grown = recorded || grow(function->module, function->module->context);
    driver_leave(CUDA_SUCCESS);
    return grown ? CUDA_SUCCESS : refuse_memory();
}

CUresult cuCtxGetLimit(size_t *value, int limit) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (value == NULL || limit < 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (limit >= LIMITS || first[limit] == 0) return driver_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = limit_of(context, limit);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetLimit(int limit, size_t value) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (limit < 0 || (limit == LIMIT_STACK && value > UINT32_MAX))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (limit >= LIMITS || first[limit] == 0) return driver_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    if (limit == LIMIT_HEAP && context->heap_taken) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (limit == LIMIT_PRINTF && context->printf_taken) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (limit == LIMIT_LAUNCHES && value > MOST_LAUNCHES) value = MOST_LAUNCHES;
    bool resized = limit == LIMIT_STACK ? resize_stacks(context, value) : true;
    if (limit == LIMIT_LAUNCHES && (context->calls & CALLS_LAUNCH) != 0)
        resized = resize_pending(context, value);
    if (!resized) {
        driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        return refuse_memory();
    }
    context->limit[limit] = value;
    for (struct module *module = context->modules; module != NULL; module = module->next) {
        atomic_store(&module->due, true);
    }
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (value == NULL || attribute < 0 || attribute >= ATTRIBUTES)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (function == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    *value = attribute == ATTRIBUTE_LOCAL_SIZE ? (int)function->module->local : 0;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetAttribute(int *value, int attribute, CUfunction kernel, CUdevice device) {
    return device < 0 || device >= driver.device_count ? CUDA_ERROR_INVALID_DEVICE
                                                       : cuFuncGetAttribute(value, attribute, kernel);
}

CUresult cuFuncLoad(CUfunction function) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (function == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    struct module *module = function->module;
    bool taken = module_take(module, &module->variables) && module_take(module, &module->code);
    taken = taken && module_take_calls(module);
    driver_leave(CUDA_SUCCESS);
    return taken ? CUDA_SUCCESS : refuse_memory();
}
