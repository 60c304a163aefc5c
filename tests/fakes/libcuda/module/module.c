/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries. What an image takes, it says itself (image.c). Variables come with the module, and
 * with a library's first function; code with the first launch; each in steps of 2 MiB, until it is unloaded
 * or the context ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcuda/driver.h"
#include "libcuda/module/module.h"

#define STEP (UINT64_C(2) << 20)

static uint64_t in_steps(uint64_t size) {
    return (size + STEP - 1) / STEP * STEP;
}

bool module_take(struct module *module, uint64_t *wanted) {
    if (!device_take(module->context->device, *wanted)) return false;
    module->taken += *wanted;
    *wanted = 0;
    return true;
}

static void unload(struct module *module) {
    struct module **link = &module->context->modules;
    device_give(module->context->device, module->taken);
    while (*link != module) link = &(*link)->next;
    *link = module->next;
    handle_delete(module);
}

void module_end_all(struct context *context) {
    while (context->modules != NULL) unload(context->modules);
    device_give(context->device, context->grown);
    context->grown = 0;
}

static bool loads(const char *mode) {
    const char *chosen = getenv("CUDA_MODULE_LOADING");
    return chosen != NULL && strcmp(chosen, mode) == 0;
}

CUresult cuModuleGetLoadingMode(int *mode) {
    if (mode == NULL) return CUDA_ERROR_INVALID_VALUE;
    *mode = loads("EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* A module's variables come with it. Those of a library that is loaded eagerly too, in every context of the
 * device (seen with driver 580; there, other devices' and later contexts have them as well). */
static bool take_at_load(struct module *module, bool library) {
    CUdevice device = module->context->device;
    uint64_t contexts = driver.primary[device].alive, all;
    if (library && !loads("EAGER")) return true;
    if (!module_take_calls(module)) return false;
    for (const struct context *each = driver.contexts; each != NULL; each = each->next)
        contexts += each->alive && each->device == device;
    all = library ? contexts * module->variables : module->variables;
    module->variables = 0;
    return module_take(module, &all);
}

static CUresult load(struct module **made, const void *image, bool library) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    struct image facts = {0};
    if (result != CUDA_SUCCESS) return result;
    if (made == NULL || image == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct module *module = handle_new(library ? HANDLE_LIBRARY : HANDLE_MODULE, sizeof *module);
    if (module == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    image_read(image, &facts);
    module->context = context;
    module->variables = in_steps(facts.variables);
    for (unsigned kernel = 0; kernel < KERNEL_COUNT; kernel++) {
        module->function[kernel] = (struct function){module, kernel};
    }
    module->lasts = facts.lasts_us * 1000;
    module->local = facts.local;
    module->heap = facts.heap != 0;
    module->printf = facts.printf != 0;
    module->calls = facts.calls;
    module->parameters = facts.parameters;
    module->code = in_steps(facts.code);
    atomic_init(&module->due, true);
    module->next = context->modules;
    context->modules = module;
    if (!take_at_load(module, library)) {
        unload(module);
        driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        return refuse_memory();
    }
    *made = module;
    return driver_leave(CUDA_SUCCESS);
}

/* A file is read in full; what is not there is CUDA_ERROR_FILE_NOT_FOUND. */
static CUresult load_file(struct module **made, const char *file, bool library) {
    _Alignas(8) char image[4096] = "";
    FILE *opened = file == NULL ? NULL : fopen(file, "r");
    if (file == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (opened == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
    size_t length = fread(image, 1, sizeof image - 1, opened);
    fclose(opened);
    return length == 0 ? CUDA_ERROR_INVALID_IMAGE : load(made, image, library);
}

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    return load_file(module, file, false);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return load(module, image, false);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, void *options,
                            void **values) {
    (void)count, (void)options, (void)values;
    return load(module, image, false);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return load(module, image, false);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, void *options, void **values,
                           unsigned count, void *library_options, void **library_values,
                           unsigned library_count) {
    (void)options, (void)values, (void)count, (void)library_options, (void)library_values,
        (void)library_count;
    return load(library, image, true);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, void *options, void **values,
                               unsigned count, void *library_options, void **library_values,
                               unsigned library_count) {
    (void)options, (void)values, (void)count, (void)library_options, (void)library_values,
        (void)library_count;
    return load_file(library, file, true);
}

static CUresult end(void *handle, enum handle_kind kind) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    struct module *module = handle_find(kind, handle);
    if (module == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    unload(module);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuModuleUnload(CUmodule module) {
    return end(module, HANDLE_MODULE);
}

CUresult cuLibraryUnload(CUlibrary library) {
    return end(library, HANDLE_LIBRARY);
}

/* Every module has every function, whatever name is asked for; a library its kernels. Lazily, a module's code
 * is loaded here (CUDA programming guide, lazy loading). */
static CUresult get_function(CUfunction *function, void *handle, enum handle_kind kind, const char *name) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (function == NULL || name == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct module *module = handle_find(kind, handle);
    if (module == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    *function = &module->function[kernel_named(name)];
    if (kind == HANDLE_MODULE && loads("LAZY")) (void)module_take(module, &module->code);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    return get_function(function, module, HANDLE_MODULE, name);
}

CUresult cuLibraryGetKernel(CUfunction *kernel, CUlibrary library, const char *name) {
    return get_function(kernel, library, HANDLE_LIBRARY, name);
}

/* A module lists all of its functions, a library one. `room`: how many handles may be written. */
static CUresult list_functions(CUfunction *functions, unsigned room, unsigned *count, void *handle,
                               enum handle_kind kind) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    struct module *module = handle_find(kind, handle);
    if (module == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (functions == NULL && count == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    unsigned there = kind == HANDLE_MODULE ? KERNEL_COUNT : 1;
    if (count != NULL) *count = there;
    for (unsigned index = 0; functions != NULL && index < room && index < there; index++)
        functions[index] = &module->function[index];
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
    return list_functions(NULL, 0, count, library, HANDLE_LIBRARY);
}

CUresult cuLibraryEnumerateKernels(CUfunction *kernels, unsigned room, CUlibrary library) {
    return list_functions(kernels, room, NULL, library, HANDLE_LIBRARY);
}

CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
    return list_functions(NULL, 0, count, module, HANDLE_MODULE);
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned room, CUmodule module) {
    return list_functions(functions, room, NULL, module, HANDLE_MODULE);
}

static CUresult load_variables(struct module *module) {
    if (module_take(module, &module->variables) && module_take_calls(module))
        return driver_leave(CUDA_SUCCESS);
    driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    return refuse_memory();
}

CUresult cuKernelGetFunction(CUfunction *function, CUfunction kernel) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (function == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (kernel == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    result = load_variables(kernel->module);
    if (result == CUDA_SUCCESS) *function = kernel;
    return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    struct module *module = handle_find(HANDLE_LIBRARY, library);
    if (module == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (name == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    result = load_variables(module);
    if (result == CUDA_SUCCESS && address != NULL) *address = BLOCKS_FIRST_ADDRESS;
    if (result == CUDA_SUCCESS && size != NULL) *size = module->taken;
    return result;
}
