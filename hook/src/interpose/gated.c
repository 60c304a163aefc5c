/* SPDX-License-Identifier: Apache-2.0
 *
 * The submissions (tables/gated_calls.h): each passes the gate and goes to the driver as it came. In a
 * process that does not take part they cost one load, one branch and one jump. The first launch of a function
 * is looked at before and after (code/launch.h). The others pass at once where the short path is open
 * (functions/short_path.h), or are found in a table. What goes to the default stream of its thread makes sure
 * of that first (streams/thread_stream.h).
 */
#include "code/launch.h"
#include "functions/functions.h"
#include "gate/gate.h"
#include "streams/thread_stream.h"

#include <stddef.h>

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

#define STREAM_READY(base, stream, on)                                                                       \
    if (IS_OWN_##stream(on)) {                                                                               \
        CUresult ready = thread_stream_ready(#base);                                                         \
        if (ready != CUDA_SUCCESS) return ready;                                                             \
    }

#define PASS(symbol, words)                                                                                  \
    if (gate_is_unused()) return driver.symbol(CONVGPU_ARGUMENTS_##words);                                   \
    TAKE_PART(symbol, words)

#define TAKE_PART(symbol, words)                                                                             \
    struct gate_flag *flag = gate_own;                                                                       \
    if (!gate_step_in(flag)) return gated_##symbol(CONVGPU_ARGUMENTS_##words);                               \
    CUresult result = driver.symbol(CONVGPU_ARGUMENTS_##words);                                              \
    gate_step_out(flag);                                                                                     \
    return result;

#define EXPORT_GATED(symbol, base, since, stream, words, on)                                                 \
    BEHIND(symbol, stream, words, on)                                                                        \
    EXPORTED CUresult symbol(CONVGPU_PARAMETERS_##words);                                                    \
    CUresult symbol(CONVGPU_PARAMETERS_##words) {                                                            \
        STREAM_READY(base, stream, on)                                                                       \
        PASS(symbol, words)                                                                                  \
    }
CONVGPU_OTHER_GATED_CALLS(EXPORT_GATED)

/* The first launch of a function. */
#define FIRST(symbol, words, on)                                                                             \
    static BEHIND_GATE CUresult first_##symbol(CONVGPU_PARAMETERS_##words) {                                 \
        struct launch launch;                                                                                \
        CUresult result = launch_begin(&launch, LAUNCHED_##symbol, on);                                      \
        if (result != CUDA_SUCCESS) return result;                                                           \
        result = gated_##symbol(CONVGPU_ARGUMENTS_##words);                                                  \
        launch_end(&launch, result);                                                                         \
        return result;                                                                                       \
    }

/* Its stream is there. */
#define PASS_LAUNCH(symbol, words)                                                                           \
    if (short_path_is_open(LAUNCHED_##symbol)) return driver.symbol(CONVGPU_ARGUMENTS_##words);              \
    if (!functions_are_seen(LAUNCHED_##symbol)) return first_##symbol(CONVGPU_ARGUMENTS_##words);            \
    PASS(symbol, words)

#define EXPORT_LAUNCH_IN_C(symbol, base, since, stream, words, on)                                           \
    BEHIND(symbol, stream, words, on)                                                                        \
    FIRST(symbol, words, on)                                                                                 \
    EXPORTED CUresult symbol(CONVGPU_PARAMETERS_##words);                                                    \
    CUresult symbol(CONVGPU_PARAMETERS_##words) {                                                            \
        STREAM_READY(base, stream, on)                                                                       \
        PASS_LAUNCH(symbol, words)                                                                           \
    }
CONVGPU_SHORT_LAUNCH_CALLS(EXPORT_LAUNCH_IN_C)

/* gcc moves the arguments that lie on the stack into registers and back before it jumps on, though they stay
 * where they are, and saves registers for that: 8 ns of a launch on a card and more (docs/decisions/0159). So
 * it is written by hand: EXPORT_LAUNCH_IN_C, the short path in one line of the cache, with jumps alone. It is
 * declared without arguments, because it touches none; the stream is the third of those on the stack. */
#if defined(__x86_64__)

/* To 4, if the stream is the thread's own and not known to be there; 5: it is there, or another. A twin is
 * mostly called with its default stream, a call as such with another one. */
#define STREAM_KNOWN                                                                                         \
    "mov thread_stream_epoch@gottpoff(%%rip), %%rax\n\t"                                                     \
    "mov %%fs:(%%rax), %%eax\n\t"                                                                            \
    "cmp %%eax, device_epoch(%%rip)\n\t"
#define STREAM_FIRST_NONE                                                                                    \
    "cmpq $2, 24(%%rsp)\n\t"                                                                                 \
    "je 4f\n"                                                                                                \
    "5: "
#define STREAM_FIRST_PTSZ STREAM_KNOWN "jne 4f\n5: "
#define STREAM_THEN_NONE(symbol)                                                                             \
    "4: " STREAM_KNOWN "je 5b\n\t"                                                                           \
    "jmp own_" #symbol "\n"
#define STREAM_THEN_PTSZ(symbol)                                                                             \
    "4: testq $-3, 24(%%rsp)\n\t"                                                                            \
    "jne 5b\n\t"                                                                                             \
    "jmp own_" #symbol "\n"

/* The short path, or to 3; there the table of functions and the gate. */
#define LOOK_SHORT                                                                                           \
    "movabs %0, %%rax\n\t"                                                                                   \
    "imul %%rdi, %%rax\n\t"                                                                                  \
    "shr %4, %%rax\n\t"                                                                                      \
    "mov %%eax, %%r10d\n\t"                                                                                  \
    "shr $5, %%r10d\n\t"                                                                                     \
    "lea short_path_bits(%%rip), %%r11\n\t"                                                                  \
    "mov (%%r11,%%r10,4), %%r11d\n\t"                                                                        \
    "bt %%eax, %%r11d\n\t"                                                                                   \
    "jnc 3f\n\t"                                                                                             \
    "jmp *driver+%c3(%%rip)\n"
#define LOOK_LONG(symbol)                                                                                    \
    "3: movabs %0, %%rax\n\t"                                                                                \
    "imul %%rdi, %%rax\n\t"                                                                                  \
    "shr %1, %%rax\n\t"                                                                                      \
    "lea functions_seen(%%rip), %%r10\n\t"                                                                   \
    "cmp %%rdi, (%%r10,%%rax,8)\n\t"                                                                         \
    "jne 2f\n"                                                                                               \
    "1: cmpl %2, gate_state(%%rip)\n\t"                                                                      \
    "jne open_" #symbol "\n\t"                                                                               \
    "jmp *driver+%c3(%%rip)\n"                                                                               \
    "2: xor $1, %%rax\n\t"                                                                                   \
    "cmp %%rdi, (%%r10,%%rax,8)\n\t"                                                                         \
    "je 1b\n\t"                                                                                              \
    "jmp first_" #symbol

#define EXPORT_LONG_LAUNCH(symbol, base, since, stream, words, on)                                           \
    BEHIND(symbol, stream, words, on)                                                                        \
    __attribute__((used)) FIRST(symbol, words, on) static                                                    \
        __attribute__((noinline, used)) CUresult open_##symbol(CONVGPU_PARAMETERS_##words) {                 \
        TAKE_PART(symbol, words)                                                                             \
    }                                                                                                        \
    __attribute__((used)) static BEHIND_GATE CUresult own_##symbol(CONVGPU_PARAMETERS_##words){              \
        STREAM_READY(base, stream, on) PASS_LAUNCH(symbol, words)} EXPORTED void symbol(void);               \
    __attribute__((naked, aligned(64))) void symbol(void) {                                                  \
        __asm__(STREAM_FIRST_##stream LOOK_SHORT STREAM_THEN_##stream(symbol) LOOK_LONG(symbol)              \
                :                                                                                            \
                : "i"(HANDLES_FACTOR), "i"(64 - FUNCTIONS_BITS), "i"(GATE_UNUSED),                           \
                  "i"(offsetof(struct driver, symbol)), "i"(64 - SHORT_PATH_BITS));                          \
    }
CONVGPU_LONG_LAUNCH_CALLS(EXPORT_LONG_LAUNCH)
#else
CONVGPU_LONG_LAUNCH_CALLS(EXPORT_LAUNCH_IN_C)
#endif

/* One launch on each of several devices: all are looked at, each time. */
BEHIND(cuLaunchCooperativeKernelMultiDevice, NONE, 3, 0)
EXPORTED CUresult cuLaunchCooperativeKernelMultiDevice(CONVGPU_PARAMETERS_3);
CUresult cuLaunchCooperativeKernelMultiDevice(CONVGPU_PARAMETERS_3) {
    bool ours = driver_load() && !inside_driver;
    CUresult result = ours ? launch_begin_several((const void *)(uintptr_t)a, (unsigned)b) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? gated_cuLaunchCooperativeKernelMultiDevice(a, b, c) : result;
}
