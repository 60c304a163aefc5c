/* SPDX-License-Identifier: Apache-2.0 */
#include "tables/driver.h"

#include "base/libc_symbols.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>

struct driver driver;
_Thread_local int inside_driver __attribute__((tls_model("initial-exec")));

/* In place of a gated call, or one that is passed on: those are called without a look at the pointer. */
static CUresult driver_lacks(void) {
    return CUDA_ERROR_NOT_FOUND;
}

/* Every thread that comes early opens the driver itself, and one of them enters the result: while the
 * linker's lock is held (by dlopen running a constructor that calls CUDA) waiting on a lock of ours could
 * block both. */
bool driver_load(void) {
    static _Atomic int state; /* 0 nothing, 1 being entered, 2 there */
    if (atomic_load_explicit(&state, memory_order_acquire) == 2) return true;
    if (inside_driver) return false; /* the driver's own constructors */
    struct driver loaded;
    inside_driver++;
    void *handle = dlopen(CONVGPU_DRIVER_FILE, RTLD_LAZY | RTLD_LOCAL);
    if (handle) {
#define LOAD_HOOKED(symbol, base, since, stream, gate, parameters, arguments)                                \
    loaded.symbol = (CUresult(*) parameters)libc_dlsym()(handle, #symbol);
#define LOAD_DRIVER(symbol, parameters) loaded.symbol = (CUresult(*) parameters)libc_dlsym()(handle, #symbol);
#define LOAD_WORDS(member, symbol, words)                                                                    \
    member = (CUresult (*)(CONVGPU_PARAMETERS_##words))libc_dlsym()(handle, #symbol);                        \
    if (!member) member = (CUresult (*)(CONVGPU_PARAMETERS_##words))(void *)driver_lacks;
#define LOAD_GATED(symbol, base, since, stream, words, on)  LOAD_WORDS(loaded.symbol, symbol, words)
#define LOAD_PASSED(symbol, base, since, stream, words, on) LOAD_WORDS(loaded.passed.symbol, symbol, words)
        CONVGPU_HOOKED_CALLS(LOAD_HOOKED)
        CONVGPU_GATED_CALLS(LOAD_GATED)
        CONVGPU_DRIVER_CALLS(LOAD_DRIVER)
        CONVGPU_STREAM_CALLS(LOAD_PASSED)
    }
    inside_driver--;
    if (!handle) return false;
    int expected = 0;
    if (atomic_compare_exchange_strong(&state, &expected, 1)) {
        driver = loaded;
        atomic_store_explicit(&state, 2, memory_order_release);
    }
    while (atomic_load_explicit(&state, memory_order_acquire) != 2) sched_yield(); /* for one memcpy */
    return true;
}
