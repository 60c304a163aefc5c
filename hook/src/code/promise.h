/* SPDX-License-Identifier: Apache-2.0
 *
 * Charging what contexts will take (promises/promises.h). No function may be called with a lock held but
 * those of this folder.
 */
#ifndef CONVGPU_PROMISE_H
#define CONVGPU_PROMISE_H

#include "promises/promises.h"

/* Charges `size` bytes more and promises them; may pause, and waits until the driver has freed what others
 * held. CUDA_ERROR_OUT_OF_MEMORY: they cannot be had, and nothing was promised. */
CUresult promise_make(const struct promise *promise, const char *call, uint64_t size);

/* Gives back at most `size` bytes of what was promised and not kept. */
void promise_withdraw(const struct promise *promise, uint64_t size);

/* The module or library is gone: gives back what it was promised. */
void promise_end(uint64_t owner);

#endif
