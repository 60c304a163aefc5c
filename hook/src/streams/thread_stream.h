/* SPDX-License-Identifier: Apache-2.0
 *
 * The default stream of a thread. The driver makes it with the first call of the thread, in each context,
 * that is given it: any call, a question too. That takes queues (queues.h), which the context keeps for
 * another thread's when the thread ends. So whoever is given it for the first time makes it here before,
 * where it is measured. See docs/decisions/0222.
 */
#ifndef CONVGPU_THREAD_STREAM_H
#define CONVGPU_THREAD_STREAM_H

#include "accounting/device.h"

/* The epoch (device.h) in which this thread had its stream in every context that there is; 0: in none.
 * Initial-exec, so that a launch can read it. */
extern _Thread_local uint32_t thread_stream_epoch __attribute__((tls_model("initial-exec")));

/* Makes it in the current context, unless that was done. What thread_stream_ready() returns. */
CUresult thread_stream_make(const char *call);

/* Before a call that is given the thread's default stream, with no lock held. CUDA_ERROR_OUT_OF_MEMORY: what
 * it takes cannot be had, and the call must not be made. May pause; waits while the process is suspended. */
static inline CUresult thread_stream_ready(const char *call) {
    uint32_t now = atomic_load_explicit(&device_epoch, memory_order_acquire);
    return __builtin_expect(thread_stream_epoch == now, 1) ? CUDA_SUCCESS : thread_stream_make(call);
}

#endif
