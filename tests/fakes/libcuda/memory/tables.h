/* SPDX-License-Identifier: Apache-2.0
 *
 * Page tables of a device for what is mapped: 4 KiB for every 512 MiB of addresses with a mapping that may be
 * used, and for every 2 MiB with pinned memory; 8 bytes for 64 KiB of a sparse array. NVML lists them for no
 * process (seen on an H200). driver.mutex held.
 */
#ifndef SIMULATED_TABLES_H
#define SIMULATED_TABLES_H

#include "libcuda/driver.h"

#define TABLE           UINT64_C(4096)
#define TABLE_REGION    (UINT64_C(512) << 20)
#define TABLE_OF_HOST   (UINT64_C(2) << 20)
#define TABLE_OF_SPARSE UINT64_C(8192)

/* In steps of 2 MiB. False: the device has no room. */
bool tables_take(CUdevice device, uint64_t size);
void tables_give(CUdevice device, uint64_t size);

/* The device has no context any more. */
void tables_end_all(CUdevice device);

#endif
