/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules, libraries and the limits of a context.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

/* module VARIABLES CODE LOCAL HEAP PRINTF PARAMETERS, or library: an image of the simulated driver. */
static CUresult load(const char *command, const size_t *number, void **made) {
    char image[160];
    snprintf(image, sizeof image, "variables=%zu code=%zu local=%zu heap=%zu printf=%zu parameters=%zu",
             number[0], number[1], number[2], number[3], number[4], number[5]);
    if (strcmp(command, "module") == 0) return cuda.cuModuleLoadData(made, image);
    if (strcmp(command, "moduleex") == 0) return cuda.cuModuleLoadDataEx(made, image, 0, NULL, NULL);
    if (strcmp(command, "modulefat") == 0) return cuda.cuModuleLoadFatBinary(made, image);
    if (strcmp(command, "library") == 0)
        return cuda.cuLibraryLoadData(made, image, NULL, NULL, 0, NULL, NULL, 0);
    return -1;
}

enum { LISTED = 64 };
static void *listed[LISTED]; /* of modules and libraries in turn, and so mostly of others than the last */

static CUresult find_function(const char *call, size_t owner, void **function) {
    CUresult (*get)(void **, void *, const char *) =
        (CUresult (*)(void **, void *, const char *))driver_symbol(call);
    return get(function, (void *)owner, "kernel");
}

CUresult run_module(const char *command, const size_t *number, char *values) {
    void *made = (void *)0x5a5a;
    CUdeviceptr address = 0;
    size_t size = 0;
    if (strcmp(command, "unload") == 0) return cuda.cuModuleUnload((void *)number[0]);
    if (strcmp(command, "unloadlibrary") == 0) return cuda.cuLibraryUnload((void *)number[0]);
    if (strcmp(command, "stack") == 0) return cuda.cuCtxSetLimit(0, number[0]);
    if (strcmp(command, "printf") == 0) return cuda.cuCtxSetLimit(1, number[0]);
    if (strcmp(command, "heap") == 0) return cuda.cuCtxSetLimit(2, number[0]);
    if (strcmp(command, "pending") == 0) return cuda.cuCtxSetLimit(4, number[0]);
    if (strcmp(command, "nullmodule") == 0) return cuda.cuModuleLoadData(NULL, "");
    if (strcmp(command, "variable") == 0)
        return cuda.cuLibraryGetGlobal(&address, &size, (void *)number[0], "variable");
    CUresult result = load(command, number, &made);
    if (strcmp(command, "function") == 0) result = find_function("cuModuleGetFunction", number[0], &made);
    if (strcmp(command, "kernel") == 0) result = find_function("cuLibraryGetKernel", number[0], &made);
    if (strcmp(command, "functions") == 0)
        result = cuda.cuModuleEnumerateFunctions(listed, LISTED, (void *)number[0]);
    if (strcmp(command, "kernels") == 0)
        result = cuda.cuLibraryEnumerateKernels(listed, LISTED, (void *)number[0]);
    if (strcmp(command, "functions") == 0 || strcmp(command, "kernels") == 0) made = listed[number[1]];
    if (strcmp(command, "load") == 0) result = cuda.cuKernelGetFunction(&made, (void *)number[0]);
    if (result != -1) sprintf(values, " %p", made);
    return result;
}
