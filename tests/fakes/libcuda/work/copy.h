/* SPDX-License-Identifier: Apache-2.0
 *
 * What copies of all forms have in common. driver.mutex held, everywhere.
 */
#ifndef SIMULATED_COPY_H
#define SIMULATED_COPY_H

#include "libcuda/work/copy_api.h"
#include "libcuda/work/work.h"

/* Gives a copy or fill to the lane. `waits`: until it is done, if it goes over the bus; a copy to or from
 * memory of the host that is not registered is always waited for, which a card stages. */
CUresult copy_submit(const struct lane *lane, const struct operation *operation, bool waits);

/* The operation of a copy in three dimensions. CUDA_ERROR_INVALID_VALUE for extents that do not fit,
 * CUDA_ERROR_INVALID_HANDLE for an unknown array. */
CUresult copy_solid(const CUDA_MEMCPY3D *copy, struct operation *operation);

#endif
