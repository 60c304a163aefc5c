/* SPDX-License-Identifier: Apache-2.0
 *
 * cuGetProcAddress: from a base name, a CUDA version and flags to exactly one variant.
 */
#include <string.h>

#include "libcuda/driver.h"
#include "libcuda/symbol_table.h"

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
