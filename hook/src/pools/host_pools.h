/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools of the host's memory: that is not charged, but the devices have page tables of it
 * (mapped/page_tables.h), of all that such a pool has reserved.
 */
#ifndef CONVGPU_HOST_POOLS_H
#define CONVGPU_HOST_POOLS_H

#include "tables/driver.h"

/* Memory was allocated from it. CUDA_ERROR_OUT_OF_MEMORY: the tables cannot be had, and the caller frees it.
 * May pause; no lock may be held. */
CUresult host_pools_grown(CUmemoryPool pool, const char *call);

/* It may have reserved less since; or is about to be destroyed. */
void host_pools_fell(CUmemoryPool pool);

#endif
