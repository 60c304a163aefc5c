/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket to the porter (convgpu/carrier.h). The service thread brings a new one; only the mover's thread
 * sends and receives.
 */
#ifndef CONVGPU_RESIDENCY_CARRIER_H
#define CONVGPU_RESIDENCY_CARRIER_H

#include <convgpu/carrier.h>
#include <stdbool.h>

/* Takes over a descriptor in place of the present carrier. */
void carrier_adopt(int descriptor);

/* Whether a carrier came that was not begun. */
bool carrier_is_offered(void);

/* Takes it in place of the one before, whose answers have been read. */
void carrier_begin(void);

/* Whether there is one that is not broken. */
bool carrier_is_there(void);

/* Sends a frame, with a descriptor (-1: none) that stays the caller's. False: the porter does not get it;
 * what it had answered before can still be received. */
bool carrier_send(const struct convgpu_piece *frame, int descriptor);

/* Waits for a frame, at most `milliseconds`. False: none came; the carrier may be broken, and then every
 * answer of its porter has been received. */
bool carrier_receive(struct convgpu_piece *frame, int milliseconds);

#endif
