/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's own tables of what is mapped for it: 4 KiB for what lies apart from all else, and a 512th of
 * pinned memory (seen on an H200, driver 580). Nobody is told of them. They are measured whenever 8 MiB of
 * them may have come.
 */
#ifndef CONVGPU_PAGE_TABLES_H
#define CONVGPU_PAGE_TABLES_H

#include "tables/driver.h"

/* Memory of the device has been mapped once more. If it is time, measures and charges what the contexts grew:
 * CUDA_ERROR_OUT_OF_MEMORY if that cannot be had. May pause. */
CUresult page_tables_mapped(const char *call);

/* It has been unmapped once; a lock may be held. Afterwards, without a lock: if it is time, gives back what
 * the contexts do not take any more. */
void page_tables_unmapped(void);
void page_tables_fell(void);

#endif
