/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that make contexts grow: code and variables of modules and libraries, and stacks. What a module
 * takes, the driver alone knows (and at a launch it may load more), so it is measured (context_growth.h) when
 * the driver's free memory fell during the call; other processes make it fall too, which costs a question in
 * vain. What a larger stack takes is known: every thread that the device can run at a time gets one (seen on
 * an H200, to the byte).
 */
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "scheduler/account.h"
#include "scheduler/session.h"

enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_THREADS = 39 };

/* The current device and what is free on it, before a call. */
struct memory_sample {
    int device; /* negative: nothing can be seen */
    size_t unused;
};

static struct memory_sample module_sample(void) {
    struct memory_sample before = {.device = DEVICE_UNKNOWN};
    CUcontext context;
    size_t total;
    if (!session_is_open() || device_current(&context, &before.device) != CUDA_SUCCESS || before.device < 0 ||
        !account_watched((uint32_t)before.device) ||
        DRIVER(cuMemGetInfo_v2, &before.unused, &total) != CUDA_SUCCESS)
        before.device = DEVICE_UNKNOWN;
    return before;
}

/* Charges what the contexts grew since. */
static CUresult charge_fall(const struct memory_sample *before, const char *call) {
    size_t unused, total;
    if (before->device < 0 || DRIVER(cuMemGetInfo_v2, &unused, &total) != CUDA_SUCCESS) return CUDA_SUCCESS;
    return unused < before->unused ? growth_charge(before->device, call, 0) : CUDA_SUCCESS;
}

/* One load; its attempt writes `made`. */
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
static CUresult module_load(void **made, const char *call, charge_attempt *attempt,
                            CUresult (*unload)(void *), struct loading *loading) {
    struct memory_sample before = module_sample();
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

static CUresult module_attempt_file(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoad, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoad(void **module, const char *file) {
    struct loading loading = {.image = file};
    return module_load(module, "cuModuleLoad", module_attempt_file, unload_module, &loading);
}

static CUresult module_attempt_data(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadData, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoadData(void **module, const void *image) {
    struct loading loading = {.image = image};
    return module_load(module, "cuModuleLoadData", module_attempt_data, unload_module, &loading);
}

static CUresult module_attempt_data_ex(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadDataEx, &loading->made, loading->image, loading->count, loading->options,
                  loading->values);
}

CUresult hooked_cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options,
                                   void **values) {
    struct loading loading = {.image = image, .options = options, .values = values, .count = count};
    return module_load(module, "cuModuleLoadDataEx", module_attempt_data_ex, unload_module, &loading);
}

static CUresult module_attempt_fat(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadFatBinary, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoadFatBinary(void **module, const void *image) {
    struct loading loading = {.image = image};
    return module_load(module, "cuModuleLoadFatBinary", module_attempt_fat, unload_module, &loading);
}

static CUresult module_attempt_library(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuLibraryLoadData, &loading->made, loading->image, loading->options, loading->values,
                  loading->count, loading->library_options, loading->library_values, loading->library_count);
}

CUresult hooked_cuLibraryLoadData(void **library, const void *image, void *options, void **values,
                                  unsigned count, void *library_options, void **library_values,
                                  unsigned library_count) {
    struct loading loading = {image,           options,        values,        count,
                              library_options, library_values, library_count, 0};
    return module_load(library, "cuLibraryLoadData", module_attempt_library, unload_library, &loading);
}

static CUresult module_attempt_library_file(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuLibraryLoadFromFile, &loading->made, loading->image, loading->options, loading->values,
                  loading->count, loading->library_options, loading->library_values, loading->library_count);
}

CUresult hooked_cuLibraryLoadFromFile(void **library, const char *file, void *options, void **values,
                                      unsigned count, void *library_options, void **library_values,
                                      unsigned library_count) {
    struct loading loading = {file,           options,       values, count, library_options,
                              library_values, library_count, 0};
    return module_load(library, "cuLibraryLoadFromFile", module_attempt_library_file, unload_library,
                       &loading);
}

/* A library that is loaded lazily takes its variables here. They stay until it is unloaded, so what cannot be
 * had is owed, as after a launch. */
CUresult hooked_cuKernelGetFunction(void **function, void *kernel) {
    struct memory_sample before = module_sample();
    CUresult result = DRIVER(cuKernelGetFunction, function, kernel);
    if (result == CUDA_SUCCESS) (void)charge_fall(&before, "cuKernelGetFunction");
    return result;
}

CUresult hooked_cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, void *library, const char *name) {
    struct memory_sample before = module_sample();
    CUresult result = DRIVER(cuLibraryGetGlobal, address, size, library, name);
    if (result == CUDA_SUCCESS) (void)charge_fall(&before, "cuLibraryGetGlobal");
    return result;
}

static CUresult unloaded(const struct memory_sample *before, CUresult result) {
    size_t unused, total;
    if (before->device < 0 || result != CUDA_SUCCESS) return result;
    if (DRIVER(cuMemGetInfo_v2, &unused, &total) == CUDA_SUCCESS && unused > before->unused)
        growth_fell(before->device);
    return result;
}

CUresult hooked_cuModuleUnload(void *module) {
    struct memory_sample before = module_sample();
    return unloaded(&before, unload_module(module));
}

CUresult hooked_cuLibraryUnload(void *library) {
    struct memory_sample before = module_sample();
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

static CUresult module_attempt_stack(void *size) {
    return DRIVER(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, *(size_t *)size);
}

/* Growth is entered with each try: a context that ends in between takes it along. */
static CUresult module_set_stack(int device, size_t size, uint64_t more) {
    struct charge charge = {.call = "cuCtxSetLimit", .device = device, .current = true};
    CUresult result = charge_open(&charge, more);
    if (result != CUDA_SUCCESS) return result;
    for (int round = 0;; round++) {
        growth_add(device, more);
        result = charge_call_when_settled(&charge, module_attempt_stack, &size);
        if (result == CUDA_SUCCESS) return result;
        growth_give(device, more);
        if (!charge_again(&charge, result, round)) return result;
    }
}

CUresult hooked_cuCtxSetLimit(int limit, size_t size) {
    CUcontext context;
    int device;
    size_t old = 0;
    uint64_t more = 0;
    if (device_current(&context, &device) != CUDA_SUCCESS || device < 0 ||
        DRIVER(cuCtxGetLimit, &old, CU_LIMIT_STACK_SIZE) != CUDA_SUCCESS)
        return DRIVER(cuCtxSetLimit, limit, size);
    uint64_t each = stacks();
    if (size > old && __builtin_mul_overflow((uint64_t)(size - old), each, &more)) more = UINT64_MAX;
    CUresult result = module_set_stack(device, size, more);
    if (result == CUDA_SUCCESS && size < old) growth_give(device, (old - size) * each);
    return result;
}
