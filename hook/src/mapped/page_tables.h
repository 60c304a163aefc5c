/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's own tables of what is mapped for it. The driver counts them for no process, so they are
 * counted here, by what an H200 takes (driver 580): 4 KiB for every 512 MiB of addresses in which something
 * is mapped, and for every 2 MiB in which host memory is; the contexts of a process share them. They are
 * charged in steps of 8 MiB, on every device on which there are contexts.
 */
#ifndef CONVGPU_PAGE_TABLES_H
#define CONVGPU_PAGE_TABLES_H

#include "tables/driver.h"

/* Something is mapped at these addresses, or is not any more; `host`: memory of the host, in small pages.
 * CUDA_ERROR_OUT_OF_MEMORY: its tables cannot be had, and are not counted; the caller undoes the mapping. May
 * pause; no lock may be held. The second may be called with a lock held. */
CUresult page_tables_map(const char *call, uint64_t address, uint64_t size, bool host);
void page_tables_unmap(uint64_t address, uint64_t size, bool host);

/* Whether the memory of a handle of cuMemCreate lies on the host. */
bool page_tables_are_of_host(uint64_t handle);

/* The same where only the size of the tables is known, in bytes. */
CUresult page_tables_come(const char *call, uint64_t size);
void page_tables_go(uint64_t size);

/* A context was made or has ended: a device without any has no tables while another has. */
void page_tables_settle(void);

#endif
