/* SPDX-License-Identifier: Apache-2.0
 *
 * Page tables of a device for what is mapped: 4 KiB for each 512 MiB with a mapping, a 512th of pinned memory
 * (seen on an H200). driver.mutex held.
 */
#ifndef SIMULATED_TABLES_H
#define SIMULATED_TABLES_H

#include "libcuda/driver.h"

#define TABLE        UINT64_C(4096)
#define TABLE_REGION (UINT64_C(512) << 20)
#define TABLE_PAGES  512u

/* In steps of 2 MiB. False: the device has no room. */
bool tables_take(CUdevice device, uint64_t size);
void tables_give(CUdevice device, uint64_t size);

/* The device has no context any more. */
void tables_end_all(CUdevice device);

#endif
