/* SPDX-License-Identifier: Apache-2.0
 *
 * The submissions (tables/gated_calls.h): each passes the gate and goes to the driver as it came. In a
 * process that does not take part they cost one load, one branch and one jump.
 */
#include "gate/gate.h"

#define EXPORTED __attribute__((visibility("default")))

/* Out of the way of the short path. */
#define BEHIND_GATE __attribute__((noinline, cold))

#define PER_THREAD_NONE false
#define PER_THREAD_PTSZ true

#define EXPORT_GATED(symbol, base, since, stream, words, on)                                                 \
    static BEHIND_GATE CUresult gated_##symbol(CONVGPU_PARAMETERS_##words) {                                 \
        enum gate_pass pass = gate_enter((CUstream)(uintptr_t)(on), PER_THREAD_##stream);                    \
        if (pass == GATE_REFUSED) return CUDA_ERROR_NOT_INITIALIZED;                                         \
        CUresult result = driver.symbol(CONVGPU_ARGUMENTS_##words);                                          \
        if (pass == GATE_PASSED) gate_leave();                                                               \
        return result;                                                                                       \
    }                                                                                                        \
    EXPORTED CUresult symbol(CONVGPU_PARAMETERS_##words);                                                    \
    CUresult symbol(CONVGPU_PARAMETERS_##words) {                                                            \
        if (gate_is_unused()) return driver.symbol(CONVGPU_ARGUMENTS_##words);                               \
        struct gate_flag *flag = gate_own;                                                                   \
        if (!gate_step_in(flag)) return gated_##symbol(CONVGPU_ARGUMENTS_##words);                           \
        CUresult result = driver.symbol(CONVGPU_ARGUMENTS_##words);                                          \
        gate_step_out(flag);                                                                                 \
        return result;                                                                                       \
    }
CONVGPU_GATED_CALLS(EXPORT_GATED)
