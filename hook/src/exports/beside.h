/* SPDX-License-Identifier: Apache-2.0
 *
 * A dma-buf of memory that a pool or a graph gave out keeps that, and nobody is told when they give it up: in
 * pieces of 32 MiB, which the driver counts for nobody then (seen on an H200). So it counts once more, beside
 * them, as long as anybody has the dma-buf; each dma-buf by itself, for what comes next may have the same
 * addresses and be other memory (seen, too). Memory that was imported is charged to who made it, who may end
 * and close what it exported: a dma-buf of a part keeps all of it (seen, too), so it counts here as well.
 */
#ifndef CONVGPU_BESIDE_H
#define CONVGPU_BESIDE_H

#include "accounting/charge.h"

/* Charges the allocations that the addresses touch; nothing where the driver knows of none. Contracts as
 * charge_open(). */
CUresult beside_open(struct charge *charge, CUdeviceptr address, size_t size);

/* Keeps the charge as long as anybody has the descriptor, and empties it. False: that cannot be watched, and
 * the charge is as it was. */
bool beside_keep(struct charge *charge, int descriptor);

#endif
