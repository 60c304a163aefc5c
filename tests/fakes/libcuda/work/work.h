/* SPDX-License-Identifier: Apache-2.0
 *
 * Work that devices were given and that takes time. No thread does it: whoever calls the driver first does
 * what is due by then, in the order of the streams, and who synchronises waits until it is due. Work that
 * takes no time is done when it is submitted. driver.mutex held, everywhere.
 *
 * Copies between host and device take `copy_mib_per_s` each way, one after the other, whichever process they
 * are of; memory of the host that is not registered is slower, as on a card (16 and 9 of 55 GB/s). Kernels of
 * different streams do not slow each other.
 *
 * A kernel or copy that meets memory which is not mapped, when it begins or before it ends, is the end of its
 * context: CUDA_ERROR_ILLEGAL_ADDRESS from every call from then on (on a card with Xid 31 in the kernel's
 * log).
 */
#ifndef SIMULATED_WORK_H
#define SIMULATED_WORK_H

#include "libcuda/driver.h"
#include "libcuda/work/operation.h"

struct event;
struct stream;

/* Where work goes: a stream, or the legacy stream. */
struct lane {
    struct context *context;
    const void *stream;  /* NULL: the legacy stream */
    bool blocking;       /* waits for the legacy stream, and that waits for it */
    struct stream *made; /* NULL: the legacy stream */
};

/* driver_enter, and finds the lane of a stream. CUDA_ERROR_INVALID_HANDLE for an unknown one. */
CUresult work_enter(CUstream stream, bool per_thread, struct lane *lane);

/* Gives the work to the lane, or adds it to what is captured there. Returns its number in *sequence (NULL:
 * not asked), 0 if it was captured. */
CUresult work_submit(const struct lane *lane, const struct operation *operation, uint64_t *sequence);

/* The same, never captured. `after`: work that comes before it, 0: none. */
uint64_t work_add(const struct lane *lane, const struct operation *operation, uint64_t after,
                  struct event *event);

/* Does what is due. */
void work_advance(void);

/* Waits until what a new piece of work in the lane would wait for is done (of numbers up to `last`). Lets go
 * of driver.mutex meanwhile. Returns the context's error. */
CUresult work_wait(const struct lane *lane, uint64_t last);

/* The same for all work of a context. */
CUresult work_wait_all(struct context *context);

/* The same for one piece of work, of whatever lane. */
CUresult work_wait_for(struct context *context, uint64_t sequence);

bool work_pending(const struct lane *lane);
bool work_is_done(uint64_t sequence);

/* No work knows the event any more. */
void work_forget_event(const struct event *event);

/* The stream's handle is gone; what it was given is done all the same. */
void work_forget_stream(const struct stream *stream);

/* The memory is about to be unmapped: what touches it just now is the end of its context. */
void work_unmapping(uint64_t address, uint64_t size);

/* The context ends, and what it was given with it. */
void work_drop(const struct context *context);

uint64_t monotonic_now(void); /* ns */

#endif
