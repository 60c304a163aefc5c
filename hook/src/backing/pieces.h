/* SPDX-License-Identifier: Apache-2.0
 *
 * What the driver does with pieces of physical memory and the addresses they are mapped at. The mapping lock
 * (ranges.h) is held where a range is in the table; no context need be current.
 */
#ifndef CONVGPU_PIECES_H
#define CONVGPU_PIECES_H

#include "tables/driver.h"

/* Addresses for `size` bytes, whole granules. */
CUresult pieces_reserve(uint64_t size, CUdeviceptr *address);
void pieces_unreserve(CUdeviceptr address, uint64_t size);

/* Makes a piece on the device and maps it; nobody can reach it yet. On failure nothing is left. */
CUresult pieces_make(CUdevice ordinal, CUdeviceptr address, uint64_t size);

/* Lets the device, and its peers (pieces_add_peer), read and write what is mapped at the addresses. */
CUresult pieces_open(CUdevice ordinal, CUdeviceptr address, uint64_t size);

/* Unmaps pieces, which ends them. */
void pieces_end(CUdeviceptr address, uint64_t size);

/* A descriptor of the piece for another process, the caller's to close; -1 when the driver refuses. While it
 * is open the driver's own count of this process lacks the piece (docs/decisions/0009). */
int pieces_export(CUdeviceptr address);

/* A context of `peer` reaches memory of the device from now on, or not any more. True: the first, or the
 * last; new pieces follow by themselves, and what is there is the caller's to share. */
bool pieces_add_peer(CUdevice ordinal, CUdevice peer);
bool pieces_remove_peer(CUdevice ordinal, CUdevice peer);

/* Opens a piece that is mapped to one more device, or closes it. */
CUresult pieces_share(CUdevice peer, CUdeviceptr address, uint64_t size, bool open);

#endif
