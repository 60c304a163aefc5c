/* SPDX-License-Identifier: Apache-2.0
 *
 * A dma-buf of memory that a pool or a graph gave out keeps that, and nobody is told when they give it up: in
 * pieces of 32 MiB, which the driver counts for nobody then (seen on an H200). So a piece counts once more,
 * beside them, as long as anybody has a dma-buf of it.
 */
#ifndef CONVGPU_BESIDE_H
#define CONVGPU_BESIDE_H

#include "accounting/charge.h"

/* The pieces of an allocation. */
struct beside {
    struct charge charge; /* `call` is set by the caller */
    uint64_t begin, end;
};

/* Charges the pieces of the allocation that the address lies in, but for those that count already; nothing
 * where the driver knows of none. Contracts as charge_open(). */
CUresult beside_open(struct beside *beside, CUdeviceptr address);

/* The pieces count as long as anybody has the descriptor. False: that cannot be watched, or a piece that
 * counted does not any more. */
bool beside_keep(struct beside *beside, int descriptor);

/* Gives back what is charged and not kept. */
void beside_close(struct beside *beside);

#endif
