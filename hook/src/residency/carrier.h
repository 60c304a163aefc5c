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

/* Whether a carrier came since the last call: then the mover begins it anew. */
bool carrier_is_new(void);

/* Whether there is one that is not broken. */
bool carrier_is_there(void);

/* Sends a frame, with a descriptor (-1: none) that stays the caller's. False: the carrier is broken. */
bool carrier_send(const struct convgpu_piece *frame, int descriptor);

/* Waits for a frame, at most `milliseconds`. False: none came; the carrier may be broken. */
bool carrier_receive(struct convgpu_piece *frame, int milliseconds);

#endif
