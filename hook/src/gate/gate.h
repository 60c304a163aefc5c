/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate in front of every submission (tables/gated_calls.h). While it is closed, submissions wait. A
 * process that does not take part pays one load and one branch, which is always the same.
 *
 * Each thread has a flag "inside" on a cache line of its own. It stores the flag, then loads the state; who
 * closes the gate stores the state, lets the kernel put a barrier on every core that runs this process
 * (membarrier), then reads the flags. So either the thread sees the closed gate, or the closer sees the
 * thread. Where membarrier is not to be had (seccomp profiles before 2020), each thread makes the barrier.
 *
 * A submission to a stream that is being captured passes a closed gate: it is recorded, and not run.
 */
#ifndef CONVGPU_GATE_H
#define CONVGPU_GATE_H

#include "tables/driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gate_state {
    GATE_UNDECIDED, /* no session yet */
    GATE_UNUSED,    /* this process does not take part */
    GATE_OPEN,
    GATE_CLOSED,
};
extern _Atomic uint32_t gate_state; /* enum gate_state */

/* Whether submissions go straight to the driver, which is loaded then. */
static inline bool gate_is_unused(void) {
    return __builtin_expect(atomic_load_explicit(&gate_state, memory_order_acquire) == (uint32_t)GATE_UNUSED,
                            1);
}

/* "inside", of one thread. */
struct gate_flag {
    _Alignas(64) _Atomic uint32_t inside;
    _Atomic uint32_t used;  /* it was inside since somebody looked */
    _Atomic uint32_t taken; /* by a thread that lives */
};
extern _Thread_local struct gate_flag *gate_own __attribute__((tls_model("initial-exec")));
extern bool gate_is_light; /* who closes the gate makes the barrier; written before the gate is open */

static inline void gate_step_out(struct gate_flag *flag) {
    atomic_store_explicit(&flag->used, 1, memory_order_relaxed);
    atomic_store_explicit(&flag->inside, 0, memory_order_release);
}

/* The short way of gate_enter(): true for GATE_PASSED; false, and nothing happened, when it is not so simple.
 */
static inline bool gate_step_in(struct gate_flag *flag) {
    if (!flag || !gate_is_light || inside_driver) return false;
    if (atomic_load_explicit(&flag->inside, memory_order_relaxed)) return false;
    atomic_store_explicit(&flag->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load(&gate_state) == (uint32_t)GATE_OPEN, 1)) return true;
    gate_step_out(flag);
    return false;
}

enum gate_pass {
    GATE_PASSED,  /* call the driver, then gate_leave() */
    GATE_AROUND,  /* call the driver: nobody waits for this call */
    GATE_REFUSED, /* no driver, or no memory for the thread's flag */
};

/* Before a submission to `stream` (NULL: none, or the default stream; `per_thread`: of the thread). Waits
 * while the gate is closed. Called with no lock held. */
enum gate_pass gate_enter(CUstream stream, bool per_thread);
void gate_leave(void);

/* The same for the driver's part of an allocation that can be moved. What a capture on its way needs passes
 * the closed gate, for the stop waits for the capture. False: no memory for the thread's flag. */
bool gate_enter_memory(void);

/* Before any other call that takes memory, which must not appear while the process is stopped; waits
 * likewise, and is not waited for. */
void gate_wait_open(void);

/* From the first WELCOME on: whether this process takes part. */
void gate_decide(bool takes_part);
bool gate_takes_part(void);

/* Whether the barrier is membarrier's. */
bool gate_has_membarrier(void);

/* For the mover. Closes: no submission begins any more. Opens. `count` submissions may pass the closed gate;
 * 0: none any more. How many are left of them. Whether a thread is inside; or was since the last question.
 * How many threads wait. */
void gate_close(void);
void gate_open(void);
void gate_permit(uint32_t count);
uint32_t gate_permits(void);
bool gate_is_open(void);
bool gate_is_entered(void);
bool gate_take_used(void);
uint32_t gate_waiting(void);

#endif
