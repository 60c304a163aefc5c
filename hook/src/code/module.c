/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries: code and variables. What the variables and the driver's own code take is read from
 * the image where that can be (image.h), and charged before. The rest, the driver alone knows (and at a
 * launch it may load more), so it is measured (context_growth.h) when the driver's free memory fell during
 * the call; other processes make it fall too, which costs a question in vain.
 */
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "code/driver_code.h"
#include "code/libraries.h"
#include "code/promise.h"
#include "code/sample.h"
#include "functions/functions.h"
#include "functions/homes.h"
#include "images/image.h"
#include "tables/registry.h"

enum { EAGER = 1 };

/* Whether a library takes its variables in all contexts when it is loaded, and in later ones with their
 * creation (CUDA_MODULE_LOADING, CUDA programming guide). Then both calls are measured. */
static bool loads_eagerly(void) {
    int mode = 0;
    return DRIVER(cuModuleGetLoadingMode, &mode) == CUDA_SUCCESS && mode == EAGER;
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

static uint64_t handle(const void *made) {
    return (uint64_t)(uintptr_t)made;
}

static CUresult unload_module(void *module) {
    return DRIVER(cuModuleUnload, module);
}

static CUresult unload_library(void *library) {
    return DRIVER(cuLibraryUnload, library);
}

/* What the image is known to take of the current context. */
static CUresult promise_needs(const struct promise *promise, const char *call, struct image_needs needs) {
    CUresult result = CUDA_SUCCESS;
    if (promise->device < 0) return result;
    if (needs.calls) result = driver_code_promise(promise->device, promise->context, call, needs.calls);
    if (result != CUDA_SUCCESS || needs.variables == 0) return result;
    return promise_make(promise, call, needs.variables);
}

/* The program's variable is written only when everything has succeeded. Until the driver has named it, the
 * stack's own address stands for it. */
static CUresult load(struct sample *before, void **made, const char *call, charge_attempt *attempt,
                     CUresult (*unload)(void *), struct loading *loading, struct image_needs needs) {
    struct promise promise = {PROMISE_VARIABLES, before->device, before->context, handle(loading)};
    CUresult result = promise_needs(&promise, call, needs);
    if (result == CUDA_SUCCESS) result = attempt(loading);
    if (result != CUDA_SUCCESS) {
        promise_end(handle(loading));
        return result;
    }
    promises_rename(handle(loading), handle(loading->made));
    result = sample_charge_fall(before, call);
    if (needs.calls) driver_code_settle(before, needs.calls);
    if (result == CUDA_SUCCESS) {
        homes_set(loading->made, before->context);
        *made = loading->made;
    } else {
        promises_rename(handle(loading->made), handle(loading)); /* the driver may give the handle again */
        unload(loading->made);
        promise_end(handle(loading));
        if (needs.variables > 0 && before->device >= 0)
            growth_fell(before->device); /* what was measured of the promise is growth */
    }
    return result;
}

/* Loads, and unloads what cannot be had. */
static CUresult module_load(void **made, const char *call, charge_attempt *attempt,
                            CUresult (*unload)(void *), struct loading *loading, struct image_needs needs) {
    struct sample before = sample_take();
    if (needs.calls) driver_code_begin();
    CUresult result = load(&before, made, call, attempt, unload, loading, needs);
    if (needs.calls) driver_code_end();
    return result;
}

/* Where it is loaded lazily, each context takes the driver's code with its first use. */
static CUresult library_load(void **made, const char *call, charge_attempt *attempt, struct loading *loading,
                             struct image_needs needs) {
    void *loaded = NULL;
    bool eagerly = loads_eagerly();
    struct image_needs at_once = {needs.variables, eagerly ? needs.calls : 0};
    CUresult result = module_load(&loaded, call, attempt, unload_library, loading, at_once);
    eagerly &= result == CUDA_SUCCESS;
    if (eagerly) result = growth_charge_elsewhere(sample_take().device, call);
    if (eagerly && result != CUDA_SUCCESS) (void)hooked_cuLibraryUnload(loaded);
    if (result == CUDA_SUCCESS) *made = loaded;
    if (result == CUDA_SUCCESS && !eagerly) libraries_add(handle(loaded), needs);
    return result;
}

static CUresult module_attempt_file(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoad, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoad(void **module, const char *file) {
    struct loading loading = {.image = file};
    return module_load(module, "cuModuleLoad", module_attempt_file, unload_module, &loading,
                       image_file_needs(file));
}

static CUresult module_attempt_data(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadData, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoadData(void **module, const void *image) {
    struct loading loading = {.image = image};
    return module_load(module, "cuModuleLoadData", module_attempt_data, unload_module, &loading,
                       image_needs(image));
}

static CUresult module_attempt_data_ex(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadDataEx, &loading->made, loading->image, loading->count, loading->options,
                  loading->values);
}

CUresult hooked_cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options,
                                   void **values) {
    struct loading loading = {.image = image, .options = options, .values = values, .count = count};
    return module_load(module, "cuModuleLoadDataEx", module_attempt_data_ex, unload_module, &loading,
                       image_needs(image));
}

static CUresult module_attempt_fat(void *arguments) {
    struct loading *loading = arguments;
    return DRIVER(cuModuleLoadFatBinary, &loading->made, loading->image);
}

CUresult hooked_cuModuleLoadFatBinary(void **module, const void *image) {
    struct loading loading = {.image = image};
    return module_load(module, "cuModuleLoadFatBinary", module_attempt_fat, unload_module, &loading,
                       image_needs(image));
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
    return library_load(library, "cuLibraryLoadData", module_attempt_library, &loading, image_needs(image));
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
    return library_load(library, "cuLibraryLoadFromFile", module_attempt_library_file, &loading,
                        image_file_needs(file));
}

/* A library that is loaded lazily takes its variables here, in the current context. They stay until it is
 * unloaded: what was not known before and cannot be had is owed. */
struct use {
    const char *call;
    uint64_t library;
    void *object, *made;
    const char *name;
    CUdeviceptr *address;
    size_t *size;
    CUcontext context; /* that was current */
};

static CUresult use_library(struct use *use, charge_attempt *attempt) {
    struct sample before = sample_take();
    use->context = before.context;
    CUresult result = CUDA_SUCCESS;
    if (before.device >= 0)
        result = libraries_promise(before.device, before.context, use->call, use->library);
    if (result != CUDA_SUCCESS) return result;
    result = attempt(use);
    if (result != CUDA_SUCCESS) return result;
    (void)sample_charge_fall(&before, use->call);
    libraries_settle(&before, use->library);
    return result;
}

static CUresult module_attempt_function(void *argument) {
    struct use *use = argument;
    return DRIVER(cuKernelGetFunction, use->made, use->object);
}

CUresult hooked_cuKernelGetFunction(void **function, void *kernel) {
    struct use use = {.call = "cuKernelGetFunction",
                      .library = functions_library(handle(kernel)),
                      .object = kernel,
                      .made = function};
    CUresult result = use_library(&use, module_attempt_function);
    if (result != CUDA_SUCCESS || !function) return result;
    functions_add(FUNCTIONS_FUNCTION, handle(*function), use.library);
    homes_set(*function, use.context);
    return result;
}

static CUresult module_attempt_module(void *argument) {
    struct use *use = argument;
    return DRIVER(cuLibraryGetModule, use->made, use->object);
}

CUresult hooked_cuLibraryGetModule(void **module, void *library) {
    struct use use = {
        .call = "cuLibraryGetModule", .library = handle(library), .object = library, .made = module};
    CUresult result = use_library(&use, module_attempt_module);
    if (result != CUDA_SUCCESS) return result;
    functions_mix();
    homes_set(*module, use.context);
    return result;
}

CUresult hooked_cuFuncGetModule(void **module, void *function) {
    CUresult result = DRIVER(cuFuncGetModule, module, function);
    if (result != CUDA_SUCCESS) return result;
    functions_mix();
    homes_set(*module, homes_find(function));
    return result;
}

static CUresult module_attempt_global(void *argument) {
    struct use *use = argument;
    return DRIVER(cuLibraryGetGlobal, use->address, use->size, use->object, use->name);
}

CUresult hooked_cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, void *library, const char *name) {
    struct use use = {"cuLibraryGetGlobal", handle(library), library, NULL, name, address, size, NULL};
    return use_library(&use, module_attempt_global);
}

static CUresult module_attempt_managed(void *argument) {
    struct use *use = argument;
    return DRIVER(cuLibraryGetManaged, use->address, use->size, use->object, use->name);
}

CUresult hooked_cuLibraryGetManaged(CUdeviceptr *address, size_t *size, void *library, const char *name) {
    struct use use = {"cuLibraryGetManaged", handle(library), library, NULL, name, address, size, NULL};
    return use_library(&use, module_attempt_managed);
}

CUresult hooked_cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    CUresult result = libraries_promise_here("cuLibraryGetKernel", handle(library));
    if (result == CUDA_SUCCESS) result = DRIVER(cuLibraryGetKernel, kernel, library, name);
    if (result == CUDA_SUCCESS) functions_add(FUNCTIONS_KERNEL, handle(*kernel), handle(library));
    return result;
}

static void add_function(void *function, void *module) {
    functions_add(FUNCTIONS_FUNCTION, handle(function), handle(module));
    homes_set(function, homes_find(module));
}

/* `room` is the program's, `there` how many handles there are: behind them may lie others of the last call.
 */
static unsigned listed(unsigned room, unsigned there) {
    return room < there ? room : there;
}

CUresult hooked_cuLibraryEnumerateKernels(void **kernels, unsigned count, void *library) {
    unsigned there = 0;
    CUresult result = libraries_promise_here("cuLibraryEnumerateKernels", handle(library));
    if (result == CUDA_SUCCESS) result = DRIVER(cuLibraryEnumerateKernels, kernels, count, library);
    (void)DRIVER(cuLibraryGetKernelCount, &there, library);
    for (unsigned index = 0; result == CUDA_SUCCESS && index < listed(count, there); index++)
        functions_add(FUNCTIONS_KERNEL, handle(kernels[index]), handle(library));
    return result;
}

/* Where code is loaded lazily, it is here (CUDA programming guide, lazy loading): it is owed until it is had.
 */
CUresult hooked_cuModuleGetFunction(void **function, void *module, const char *name) {
    struct sample before = sample_take();
    CUresult result = DRIVER(cuModuleGetFunction, function, module, name);
    if (result == CUDA_SUCCESS) (void)sample_charge_fall(&before, "cuModuleGetFunction");
    if (result == CUDA_SUCCESS) add_function(*function, module);
    return result;
}

CUresult hooked_cuModuleEnumerateFunctions(void **functions, unsigned count, void *module) {
    unsigned there = 0;
    CUresult result = DRIVER(cuModuleEnumerateFunctions, functions, count, module);
    (void)DRIVER(cuModuleGetFunctionCount, &there, module);
    for (unsigned index = 0; result == CUDA_SUCCESS && index < listed(count, there); index++)
        add_function(functions[index], module);
    return result;
}

/* Code that is loaded ahead of a launch, and stays: what cannot be had is owed. */
CUresult hooked_cuFuncLoad(void *function) {
    struct sample before = sample_take();
    CUresult result = DRIVER(cuFuncLoad, function);
    if (result == CUDA_SUCCESS) (void)sample_charge_fall(&before, "cuFuncLoad");
    return result;
}

/* Once the driver has taken the handle back it may name another one, before its call returns. Until then the
 * stack's own address stands for it. */
static CUresult unload(void *object, CUresult (*end)(void *)) {
    struct sample before = sample_take();
    uint64_t name = handle(&before);
    promises_rename(handle(object), name);
    functions_mark_owner(handle(object));
    CUresult result = end(object);
    functions_end_owner(handle(object), result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS) {
        promises_rename(name, handle(object));
        return result;
    }
    promise_end(name);
    sample_see_rise(&before);
    return result;
}

CUresult hooked_cuModuleUnload(void *module) {
    return unload(module, unload_module);
}

/* It goes from all contexts, of other devices too, wherever it is current or not. */
CUresult hooked_cuLibraryUnload(void *library) {
    struct allocation removed;
    int device = sample_take().device;
    bool ours = libraries_remove(handle(library), &removed);
    CUresult result = unload(library, unload_library);
    if (ours) libraries_removed(removed, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) growth_fell_elsewhere(device);
    return result;
}
