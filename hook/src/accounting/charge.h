/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking for memory before the driver gives it, and giving it back. Devices are numbers of account.h.
 */
#ifndef CONVGPU_CHARGE_H
#define CONVGPU_CHARGE_H

#include "tables/driver.h"

/* What the driver sets aside for an allocation of `size` bytes; never wraps. */
uint64_t charge_round(uint64_t size);

/* Charges `size` bytes, from the headroom or by the scheduler, pausing the calling thread for as long as the
 * scheduler does not answer. CUDA_ERROR_OUT_OF_MEMORY when rejected. *settling: bytes that the driver may not
 * have freed yet. `call` names the CUDA call, for people. No lock may be held. What contexts grew is charged
 * first, when that is due (growth.h). */
CUresult charge_take(int device, uint64_t size, const char *call, uint64_t *settling);

/* The same from the headroom alone: whether it could be had. */
bool charge_try(int device, uint64_t size, const char *call);

/* The same for contexts themselves, whose growth is not looked at. */
CUresult charge_ask(int device, uint64_t size, const char *call, uint64_t *settling);

/* Gives back what charge_take() gave. */
void charge_give(int device, uint64_t size);

/* One try of a driver call that takes memory. */
typedef CUresult charge_attempt(void *arguments);

/* Makes an accepted call, waiting while the driver has not freed yet what ended processes held ("Settling" in
 * docs/protocol.md). `context` tells that the calling thread's context is on the device, so that the driver's
 * free memory can be watched. Returns the driver's last word. */
CUresult charge_settle(int device, uint64_t size, uint64_t settling, bool context, charge_attempt *attempt,
                       void *arguments);

enum { CHARGE_ROUNDS = 4 }; /* how often an accepted call is made that the driver refuses */

/* After the driver's last word (`word`) on an accepted call, in the given round (from 0), when its charge was
 * given back: if the driver had no room, asks the scheduler whether programs outside have the memory, pausing
 * until it is to be had again ("Memory outside" in docs/protocol.md). True: it is charged as before, for
 * charge_settle(). False: it is not, and the driver's word counts. No lock may be held. */
bool charge_again(int device, uint64_t size, const char *call, bool context, CUresult word, int round,
                  uint64_t *settling);

/* Both, until one of them is final. On failure nothing stays charged. */
CUresult charge_make(int device, uint64_t size, const char *call, uint64_t settling, bool context,
                     charge_attempt *attempt, void *arguments);

#endif
