/* SPDX-License-Identifier: Apache-2.0 */
#include "functions/parameters.h"

#include "base/fork_reset.h"

#include <stdatomic.h>

enum { MOST_BEFORE_12_4 = 4096, COUNT = 4096 };

static _Atomic uint64_t most;

static bool find(word function, bool kernel, size_t index, size_t *offset, size_t *size) {
    void *handle = (void *)(uintptr_t)function;
    CUresult result = kernel ? DRIVER(cuKernelGetParamInfo, handle, index, offset, size)
                             : DRIVER(cuFuncGetParamInfo, handle, index, offset, size);
    return result == CUDA_SUCCESS;
}

void parameters_see(word function, bool kernel) {
    size_t offset = 0, size = 0;
    for (size_t index = 0; index < COUNT && find(function, kernel, index, &offset, &size); index++) {
    }
    uint64_t end = offset + size, before = most;
    while (end > before && !atomic_compare_exchange_weak(&most, &before, end)) {
    }
}

uint64_t parameters_most(void) {
    return driver.cuFuncGetParamInfo ? most : MOST_BEFORE_12_4;
}

static void parameters_reset(void) {
    most = 0;
}
RESET_IN_CHILD(parameters_reset);
