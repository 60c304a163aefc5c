/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that make contexts grow: code and variables of modules and libraries, and stacks. What a module
 * takes, the driver alone knows (and at a launch it may load more), so it is measured (growth.h) when the
 * driver's free memory fell during the call; other processes make it fall too, which costs a question in
 * vain. What a larger stack takes is known: every thread that the device can run at a time gets one (seen on
 * an H200, to the byte).
 */
#include "scheduler/account.h"
#include "accounting/charge.h"
#include "accounting/device.h"
#include "accounting/context_growth.h"
#include "scheduler/session.h"

enum { LIMIT_STACK = 0 };
enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_THREADS = 39 };

/* The current device and what is free on it, before a call. */
struct look {
    int device; /* negative: nothing can be seen */
    size_t unused;
};

static struct look look(void) {
    struct look before = {.device = DEVICE_UNKNOWN};
    CUcontext context;
    size_t total;
    if (!session_ready() || device_current(&context, &before.device) != CUDA_SUCCESS || before.device < 0 ||
        !account_watched((uint32_t)before.device) ||
        DRIVER(cuMemGetInfo_v2, &before.unused, &total) != CUDA_SUCCESS)
        before.device = DEVICE_UNKNOWN;
    return before;
}

/* Charges what the contexts grew since. */
static CUresult charge_fall(const struct look *before, const char *call) {
    size_t unused, total;
    if (before->device < 0 || DRIVER(cuMemGetInfo_v2, &unused, &total) != CUDA_SUCCESS) return CUDA_SUCCESS;
    return unused < before->unused ? growth_charge(before->device, call, 0) : CUDA_SUCCESS;
}

/* One load on its way. */
struct loading {
    const void *image; /* or the name of a file */
    void *options, **values;
    unsigned count;
    void *library_options, **library_values;
    unsigned library_count;
    void *made;
};

/* Loads, and unloads what cannot be had. The program's variable is written only when everything has
 * succeeded. */
static CUresult load(void **made, const char *call, charge_attempt *attempt, CUresult (*unload)(void *),
                     struct loading *loading) {
    struct look before = look();
    CUresult result = attempt(loading);
    if (result != CUDA_SUCCESS) return result;
    result = charge_fall(&before, call);
    if (result == CUDA_SUCCESS)
        *made = loading->made;
    else
        unload(loading->made);
    return result;
}

static CUresult unload_module(void *module) {
    return DRIVER(cuModuleUnload, module);
}

static CUresult unload_library(void *library) {
    return DRIVER(cuLibraryUnload, library);
}

static CUresult attempt_file(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoad, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoad(void **module, const char *file) {
    struct loading loading = {.image = file};
    if (!module) return DRIVER(cuModuleLoad, module, file);
    return load(module, "cuModuleLoad", attempt_file, unload_module, &loading);
}

static CUresult attempt_data(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadData, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoadData(void **module, const void *image) {
    struct loading loading = {.image = image};
    if (!module) return DRIVER(cuModuleLoadData, module, image);
    return load(module, "cuModuleLoadData", attempt_data, unload_module, &loading);
}

static CUresult attempt_data_ex(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadDataEx, &loading->made, loading->image, loading->count, loading->options,
                  loading->values);
}

CUresult hooked_cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options,
                                   void **values) {
    struct loading loading = {.image = image, .options = options, .values = values, .count = count};
    if (!module) return DRIVER(cuModuleLoadDataEx, module, image, count, options, values);
    return load(module, "cuModuleLoadDataEx", attempt_data_ex, unload_module, &loading);
}

static CUresult attempt_fat(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadFatBinary, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoadFatBinary(void **module, const void *image) {
    struct loading loading = {.image = image};
    if (!module) return DRIVER(cuModuleLoadFatBinary, module, image);
    return load(module, "cuModuleLoadFatBinary", attempt_fat, unload_module, &loading);
}

static CUresult attempt_library(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuLibraryLoadData, &loading->made, loading->image, loading->options, loading->values,
                  loading->count, loading->library_options, loading->library_values, loading->library_count);
}

CUresult hooked_cuLibraryLoadData(void **library, const void *image, void *options, void **values,
                                  unsigned count, void *library_options, void **library_values,
                                  unsigned library_count) {
    struct loading loading = {image,           options,        values,        count,
                              library_options, library_values, library_count, 0};
    if (!library)
        return DRIVER(cuLibraryLoadData, library, image, options, values, count, library_options,
                      library_values, library_count);
    return load(library, "cuLibraryLoadData", attempt_library, unload_library, &loading);
}

static CUresult attempt_library_file(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuLibraryLoadFromFile, &loading->made, loading->image, loading->options, loading->values,
                  loading->count, loading->library_options, loading->library_values, loading->library_count);
}

CUresult hooked_cuLibraryLoadFromFile(void **library, const char *file, void *options, void **values,
                                      unsigned count, void *library_options, void **library_values,
                                      unsigned library_count) {
    struct loading loading = {file,           options,       values, count, library_options,
                              library_values, library_count, 0};
    if (!library)
        return DRIVER(cuLibraryLoadFromFile, library, file, options, values, count, library_options,
                      library_values, library_count);
    return load(library, "cuLibraryLoadFromFile", attempt_library_file, unload_library, &loading);
}

/* A library that is loaded lazily takes its variables here. They stay until it is unloaded, so what cannot be
 * had is owed, as after a launch. */
CUresult hooked_cuKernelGetFunction(void **function, void *kernel) {
    struct look before = look();
    CUresult result = DRIVER(cuKernelGetFunction, function, kernel);
    if (result == CUDA_SUCCESS) (void)charge_fall(&before, "cuKernelGetFunction");
    return result;
}

CUresult hooked_cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, void *library, const char *name) {
    struct look before = look();
    CUresult result = DRIVER(cuLibraryGetGlobal, address, size, library, name);
    if (result == CUDA_SUCCESS) (void)charge_fall(&before, "cuLibraryGetGlobal");
    return result;
}

static CUresult unloaded(const struct look *before, CUresult result) {
    size_t unused, total;
    if (before->device < 0 || result != CUDA_SUCCESS) return result;
    if (DRIVER(cuMemGetInfo_v2, &unused, &total) == CUDA_SUCCESS && unused > before->unused)
        growth_fell(before->device);
    return result;
}

CUresult hooked_cuModuleUnload(void *module) {
    struct look before = look();
    return unloaded(&before, unload_module(module));
}

CUresult hooked_cuLibraryUnload(void *library) {
    struct look before = look();
    return unloaded(&before, unload_library(library));
}

/* Bytes of all stacks together, per byte of one. 0: the driver does not tell. */
static uint64_t stacks(void) {
    CUdevice ordinal;
    int multiprocessors = 0, threads = 0;
    if (DRIVER(cuCtxGetDevice, &ordinal) != CUDA_SUCCESS) return 0;
    DRIVER(cuDeviceGetAttribute, &multiprocessors, ATTRIBUTE_MULTIPROCESSORS, ordinal);
    DRIVER(cuDeviceGetAttribute, &threads, ATTRIBUTE_THREADS, ordinal);
    return multiprocessors > 0 && threads > 0 ? (uint64_t)multiprocessors * (uint64_t)threads : 0;
}

static CUresult attempt_stack(void *size) {
    return DRIVER(cuCtxSetLimit, LIMIT_STACK, *(size_t *)size);
}

CUresult hooked_cuCtxSetLimit(int limit, size_t size) {
    CUcontext context;
    int device;
    size_t old = 0;
    uint64_t more = 0, settling;
    if (limit != LIMIT_STACK) return DRIVER(cuCtxSetLimit, limit, size);
    if (!session_ready()) return CUDA_ERROR_SYSTEM_NOT_READY;
    if (device_current(&context, &device) != CUDA_SUCCESS || device < 0 ||
        DRIVER(cuCtxGetLimit, &old, LIMIT_STACK) != CUDA_SUCCESS)
        return DRIVER(cuCtxSetLimit, limit, size);
    uint64_t each = stacks();
    if (size > old && __builtin_mul_overflow((uint64_t)(size - old), each, &more)) more = UINT64_MAX;
    CUresult result;
    for (int round = 0;; round++) {
        result = growth_take(device, more, "cuCtxSetLimit", &settling);
        if (result != CUDA_SUCCESS) return result;
        result = charge_settle(device, more, settling, true, attempt_stack, &size);
        if (result == CUDA_SUCCESS) break;
        growth_give(device, more);
        if (!charge_again(device, more, "cuCtxSetLimit", true, result, round, &settling)) return result;
        charge_give(device, more); /* growth is entered when it is taken */
    }
    if (result == CUDA_SUCCESS && size < old) growth_give(device, (old - size) * each);
    return result;
}
