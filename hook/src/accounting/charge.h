/* SPDX-License-Identifier: Apache-2.0
 *
 * The charge of one call of CUDA: opened before the driver is called, adjusted when the driver's figure is
 * known, closed when the call fails. The upper layer of headroom.h: what contexts grew is charged first, when
 * that is due (context_growth.h). No function here may be called with a lock held, unless it says so.
 */
#ifndef CONVGPU_CHARGE_H
#define CONVGPU_CHARGE_H

#include "accounting/headroom.h"

/* Bytes that the driver sets aside for an allocation of `size` bytes; never wraps. */
uint64_t charge_round(uint64_t size);

/* Adds `size` bytes to the charge from the headroom alone, without a pause: whether they could be had. */
bool charge_try(struct charge *charge, uint64_t size);

/* Adds `size` bytes to the charge, pausing the calling thread for as long as the scheduler does not answer.
 * CUDA_ERROR_OUT_OF_MEMORY: rejected, or what contexts grew cannot be had; nothing was added. */
CUresult charge_open(struct charge *charge, uint64_t size);

/* Brings the charge to `size` bytes: opens it for more, as charge_open(), or gives back, which cannot fail.
 */
CUresult charge_adjust(struct charge *charge, uint64_t size);

/* Gives the whole charge back. A lock may be held. */
void charge_close(struct charge *charge);

/* One try of a driver call that takes memory. */
typedef CUresult charge_attempt(void *arguments);

/* Makes the call that is charged, waiting while the driver has not freed yet what ended processes held
 * ("Settling" in docs/protocol.md), but no longer once the program is interrupted (requests/interrupt.h).
 * Returns the driver's last answer; the charge stays as it is. The lock of a primary context may be held. */
CUresult charge_call_when_settled(const struct charge *charge, charge_attempt *attempt, void *arguments);

/* How often a charged call is made that the driver refuses. Before each further try the scheduler looks at
 * the device, and waits where that lacks room; on a full one others may take it several times. */
enum { CHARGE_ROUNDS = 16 };

/* After the driver's last answer (`result`) to a charged call, in the given round (from 0). Success: false,
 * and the charge stays. After a failure the caller has given the bytes back and left charge->size as it was:
 * if the driver had no room, asks the scheduler whether external memory is why, pausing until there is room
 * ("External memory" in docs/protocol.md). True: the bytes are charged again, for charge_call_when_settled().
 * False: they are not (charge->size is 0), and the driver's answer counts. */
bool charge_again(struct charge *charge, CUresult result, int round);

/* charge_call_when_settled() and charge_again() until the answer is final. On failure nothing stays charged.
 */
CUresult charge_make(struct charge *charge, charge_attempt *attempt, void *arguments);

#endif
