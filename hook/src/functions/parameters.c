/* SPDX-License-Identifier: Apache-2.0 */
#include "functions/parameters.h"

#include "accounting/allocations.h"
#include "tables/registry.h"

#include <stdatomic.h>

enum { MOST_BEFORE_12_4 = 4096, COUNT = 4096, MOST = 32764 };

static struct allocations known = ALLOCATIONS_INITIALIZER; /* by handle; `value`: bytes */
static _Atomic uint64_t most;

bool parameters_are_told(void) {
    return driver.cuFuncGetParamInfo != NULL;
}

static bool find(word function, bool library, size_t index, size_t *offset, size_t *size) {
    void *handle = (void *)(uintptr_t)function;
    CUresult result = library ? DRIVER(cuKernelGetParamInfo, handle, index, offset, size)
                              : DRIVER(cuFuncGetParamInfo, handle, index, offset, size);
    return result == CUDA_SUCCESS;
}

/* Of a kernel with more parameters than any has, nobody asks for each. */
static uint64_t ask(word function, bool library) {
    size_t offset = 0, size = 0, index = 0;
    if (!parameters_are_told()) return MOST_BEFORE_12_4;
    while (index < COUNT && find(function, library, index, &offset, &size)) index++;
    return index < COUNT ? offset + size : MOST;
}

uint64_t parameters_of(word function, bool library) {
    struct allocation replaced, entry = {.address = function};
    if (function == 0 || allocations_find(&known, function, &entry)) return function == 0 ? 0 : entry.value;
    entry = (struct allocation){.address = function, .value = ask(function, library)};
    (void)allocations_insert(&known, entry, &replaced); /* without memory for it, it is asked for again */
    for (uint64_t before = most; entry.value > before;)
        if (atomic_compare_exchange_weak(&most, &before, entry.value)) break;
    return entry.value;
}

uint64_t parameters_most(void) {
    return most;
}

void parameters_forget(word function) {
    struct allocation removed;
    (void)allocations_remove(&known, function, &removed);
}

static void parameters_reset(void) {
    allocations_reset(&known);
    most = 0;
}
REGISTER_FAMILY(parameters, .reset = parameters_reset);
