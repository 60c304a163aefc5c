/* SPDX-License-Identifier: Apache-2.0
 *
 * The submissions (tables/gated_calls.h): each passes the gate and goes to the driver as it came. In a
 * process that does not take part they cost one load, one branch and one jump. The first launch of a function
 * is looked at before and after (code/launch.h); of the others that costs one look into a table more.
 */
#include "code/functions.h"
#include "code/launch.h"
#include "gate/gate.h"

#define EXPORTED __attribute__((visibility("default")))

/* Out of the way of the short path. */
#define BEHIND_GATE __attribute__((noinline, cold))

#define PER_THREAD_NONE false
#define PER_THREAD_PTSZ true

#define BEHIND(symbol, stream, words, on)                                                                    \
    static BEHIND_GATE CUresult gated_##symbol(CONVGPU_PARAMETERS_##words) {                                 \
        enum gate_pass pass = gate_enter((CUstream)(uintptr_t)(on), PER_THREAD_##stream);                    \
        if (pass == GATE_REFUSED) return CUDA_ERROR_NOT_INITIALIZED;                                         \
        CUresult result = driver.symbol(CONVGPU_ARGUMENTS_##words);                                          \
        if (pass == GATE_PASSED) gate_leave();                                                               \
        return result;                                                                                       \
    }

#define PASS(symbol, words)                                                                                  \
    if (gate_is_unused()) return driver.symbol(CONVGPU_ARGUMENTS_##words);                                   \
    struct gate_flag *flag = gate_own;                                                                       \
    if (!gate_step_in(flag)) return gated_##symbol(CONVGPU_ARGUMENTS_##words);                               \
    CUresult result = driver.symbol(CONVGPU_ARGUMENTS_##words);                                              \
    gate_step_out(flag);                                                                                     \
    return result;

#define EXPORT_GATED(symbol, base, since, stream, words, on)                                                 \
    BEHIND(symbol, stream, words, on)                                                                        \
    EXPORTED CUresult symbol(CONVGPU_PARAMETERS_##words);                                                    \
    CUresult symbol(CONVGPU_PARAMETERS_##words) {                                                            \
        PASS(symbol, words)                                                                                  \
    }
CONVGPU_OTHER_GATED_CALLS(EXPORT_GATED)

#define EXPORT_LAUNCH(symbol, base, since, stream, words, on)                                                \
    BEHIND(symbol, stream, words, on)                                                                        \
    static BEHIND_GATE CUresult first_##symbol(CONVGPU_PARAMETERS_##words) {                                 \
        struct launch launch;                                                                                \
        CUresult result = launch_begin(&launch, LAUNCHED_##symbol, on);                                      \
        if (result != CUDA_SUCCESS) return result;                                                           \
        result = gated_##symbol(CONVGPU_ARGUMENTS_##words);                                                  \
        launch_end(&launch, result);                                                                         \
        return result;                                                                                       \
    }                                                                                                        \
    EXPORTED CUresult symbol(CONVGPU_PARAMETERS_##words);                                                    \
    CUresult symbol(CONVGPU_PARAMETERS_##words) {                                                            \
        if (!functions_are_seen(LAUNCHED_##symbol)) return first_##symbol(CONVGPU_ARGUMENTS_##words);        \
        PASS(symbol, words)                                                                                  \
    }
CONVGPU_ONE_LAUNCH_CALLS(EXPORT_LAUNCH)

/* One launch on each of several devices: all are looked at, each time. */
BEHIND(cuLaunchCooperativeKernelMultiDevice, NONE, 3, 0)
EXPORTED CUresult cuLaunchCooperativeKernelMultiDevice(CONVGPU_PARAMETERS_3);
CUresult cuLaunchCooperativeKernelMultiDevice(CONVGPU_PARAMETERS_3) {
    bool ours = driver_load() && !inside_driver;
    CUresult result = ours ? launch_begin_several((const void *)(uintptr_t)a, (unsigned)b) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? gated_cuLaunchCooperativeKernelMultiDevice(a, b, c) : result;
}
