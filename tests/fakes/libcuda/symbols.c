/* SPDX-License-Identifier: Apache-2.0
 *
 * cuGetProcAddress: from a base name, a CUDA version and flags to exactly one variant.
 */
#include <string.h>

#include "driver.h"

/* X(base name, CUDA version that brought the variant, variant, whether it uses the per-thread stream). */
#define SYMBOLS(X)                                                                                           \
    X(cuInit, 2000, cuInit, false)                                                                           \
    X(cuDriverGetVersion, 2020, cuDriverGetVersion, false)                                                   \
    X(cuGetErrorName, 6000, cuGetErrorName, false)                                                           \
    X(cuGetErrorString, 6000, cuGetErrorString, false)                                                       \
    X(cuGetProcAddress, 11030, cuGetProcAddress, false)                                                      \
    X(cuGetProcAddress, 12000, cuGetProcAddress_v2, false)                                                   \
    X(cuDeviceGetCount, 2000, cuDeviceGetCount, false)                                                       \
    X(cuDeviceGet, 2000, cuDeviceGet, false)                                                                 \
    X(cuDeviceGetName, 2000, cuDeviceGetName, false)                                                         \
    X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, false)                                                         \
    X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, false)                                                     \
    X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, false)                                               \
    X(cuDeviceTotalMem, 2000, cuDeviceTotalMem, false)                                                       \
    X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, false)                                                    \
    X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, false)                                       \
    X(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease, false)                                     \
    X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, false)                                 \
    X(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset, false)                                         \
    X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2, false)                                     \
    X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState, false)                                   \
    X(cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags, false)                                   \
    X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2, false)                               \
    X(cuCtxCreate, 2000, cuCtxCreate, false)                                                                 \
    X(cuCtxCreate, 3020, cuCtxCreate_v2, false)                                                              \
    X(cuCtxCreate, 11040, cuCtxCreate_v3, false)                                                             \
    X(cuCtxCreate, 12050, cuCtxCreate_v4, false)                                                             \
    X(cuCtxDestroy, 2000, cuCtxDestroy, false)                                                               \
    X(cuCtxDestroy, 4000, cuCtxDestroy_v2, false)                                                            \
    X(cuCtxGetCurrent, 4000, cuCtxGetCurrent, false)                                                         \
    X(cuCtxSetCurrent, 4000, cuCtxSetCurrent, false)                                                         \
    X(cuCtxPushCurrent, 2000, cuCtxPushCurrent, false)                                                       \
    X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, false)                                                    \
    X(cuCtxPopCurrent, 2000, cuCtxPopCurrent, false)                                                         \
    X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, false)                                                      \
    X(cuCtxGetDevice, 2000, cuCtxGetDevice, false)                                                           \
    X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, false)                                                       \
    X(cuCtxSynchronize, 2000, cuCtxSynchronize, false)                                                       \
    X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, false)                                                   \
    X(cuMemGetInfo, 3020, cuMemGetInfo_v2, false)                                                            \
    X(cuMemAlloc, 3020, cuMemAlloc_v2, false)                                                                \
    X(cuMemAllocPitch, 3020, cuMemAllocPitch_v2, false)                                                      \
    X(cuMemAllocManaged, 6000, cuMemAllocManaged, false)                                                     \
    X(cuMemFree, 3020, cuMemFree_v2, false)                                                                  \
    X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, false)                                                            \
    X(cuMemcpyHtoD, 7000, cuMemcpyHtoD_v2_ptds, true)                                                        \
    X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, false)                                                            \
    X(cuMemcpyDtoH, 7000, cuMemcpyDtoH_v2_ptds, true)                                                        \
    X(cuMemsetD8, 3020, cuMemsetD8_v2, false)                                                                \
    X(cuMemsetD8, 7000, cuMemsetD8_v2_ptds, true)                                                            \
    X(cuModuleLoadData, 2000, cuModuleLoadData, false)                                                       \
    X(cuModuleUnload, 2000, cuModuleUnload, false)                                                           \
    X(cuModuleGetFunction, 2000, cuModuleGetFunction, false)                                                 \
    X(cuLaunchKernel, 4000, cuLaunchKernel, false)                                                           \
    X(cuLaunchKernel, 7000, cuLaunchKernel_ptsz, true)

struct symbol {
    const char *base;
    int since;
    void *function;
    bool per_thread;
};

#define DECLARE_SYMBOL(base, since, function, per_thread) {#base, since, (void *)(function), per_thread},
static const struct symbol symbols[] = {SYMBOLS(DECLARE_SYMBOL)};

/* The newest variant that the version knows, of the wanted stream kind. */
static const struct symbol *find_variant(const char *base, int version, bool per_thread, bool *known) {
    const struct symbol *best = NULL;
    *known = false;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        const struct symbol *symbol = &symbols[i];
        if (symbol->per_thread != per_thread || strcmp(symbol->base, base) != 0) continue;
        *known = true;
        if (symbol->since <= version && (best == NULL || symbol->since > best->since)) best = symbol;
    }
    return best;
}

/* The legacy variant serves a per-thread request only if there is no per-thread variant of any version. */
static const struct symbol *find_symbol(const char *base, int version, bool per_thread, bool *known) {
    const struct symbol *found = per_thread ? find_variant(base, version, true, known) : NULL;
    return per_thread && *known ? found : find_variant(base, version, false, known);
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    if (name == NULL || function == NULL || flags > CU_GET_PROC_ADDRESS_FLAGS ||
        version > CUDA_DRIVER_VERSION) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool known;
    /* Both stream flags at once mean the legacy stream. */
    bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct symbol *symbol = find_symbol(name, version, per_thread, &known);
    *function = symbol == NULL ? NULL : symbol->function;
    if (status != NULL) {
        *status = symbol != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return CUDA_SUCCESS; /* also when nothing was found, as driver 580.159 does and cuda.h says */
}

CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

static const struct {
    CUresult error;
    const char *name, *text;
} results[] = {
#define DECLARE_TEXT(name, number, text) {name, #name, text},
    CUDA_RESULTS(DECLARE_TEXT)};

static CUresult error_text(CUresult error, const char **text, bool name) {
    if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i].error == error) *text = name ? results[i].name : results[i].text;
    }
    return *text == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    return error_text(error, text, true);
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    return error_text(error, text, false);
}
