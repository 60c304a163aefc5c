/* SPDX-License-Identifier: Apache-2.0
 *
 * The handle of a piece is released as soon as it is mapped: the mapping keeps the memory, and unmapping is
 * no slower then (measurements.md).
 */
#include "backing/pieces.h"

#include "base/fork_reset.h"

#include <convgpu/carrier.h>
#include <stdatomic.h>
#include <string.h>

enum { PINNED = 1, POSIX_DESCRIPTOR = 1, READ_WRITE = 3, NO_ACCESS = 0 };
enum { DEVICES = 64 };

/* CUmemAllocationProp. */
struct piece_properties {
    struct memory_properties read;
    void *windows;
    unsigned char flags[8];
};
_Static_assert(sizeof(struct piece_properties) == 32, "as in cuda.h");

static _Atomic uint16_t peers[DEVICES][DEVICES]; /* [ordinal][peer]: contexts of the peer that reach it */

CUresult pieces_reserve(uint64_t size, CUdeviceptr *address) {
    return DRIVER(cuMemAddressReserve, address, size, CONVGPU_PIECE_GRANULE, 0, 0);
}

void pieces_unreserve(CUdeviceptr address, uint64_t size) {
    DRIVER(cuMemAddressFree, address, size);
}

CUresult pieces_make(CUdevice ordinal, CUdeviceptr address, uint64_t size) {
    struct piece_properties properties = {
        .read = {PINNED, POSIX_DESCRIPTOR, {.type = LOCATION_DEVICE, .ordinal = ordinal}}};
    uint64_t handle;
    CUresult result = DRIVER(cuMemCreate, &handle, size, &properties.read, 0);
    if (result != CUDA_SUCCESS) return result;
    result = DRIVER(cuMemMap, address, size, 0, handle, 0);
    DRIVER(cuMemRelease, handle);
    return result;
}

CUresult pieces_share(CUdevice peer, CUdeviceptr address, uint64_t size, bool open) {
    struct memory_access access = {{.type = LOCATION_DEVICE, .ordinal = peer}, open ? READ_WRITE : NO_ACCESS};
    return DRIVER(cuMemSetAccess, address, size, &access, 1);
}

static bool are_known(CUdevice ordinal, CUdevice peer) {
    return ordinal >= 0 && ordinal < DEVICES && peer >= 0 && peer < DEVICES;
}

CUresult pieces_open(CUdevice ordinal, CUdeviceptr address, uint64_t size) {
    struct memory_access access[DEVICES];
    size_t count = 0;
    access[count++] = (struct memory_access){{.type = LOCATION_DEVICE, .ordinal = ordinal}, READ_WRITE};
    for (int peer = 0; are_known(ordinal, peer) && count < DEVICES; peer++)
        if (atomic_load(&peers[ordinal][peer]) > 0)
            access[count++] = (struct memory_access){{.type = LOCATION_DEVICE, .ordinal = peer}, READ_WRITE};
    return DRIVER(cuMemSetAccess, address, size, access, count);
}

void pieces_end(CUdeviceptr address, uint64_t size) {
    DRIVER(cuMemUnmap, address, size);
}

int pieces_export(CUdeviceptr address) {
    uint64_t handle;
    int descriptor = -1;
    if (DRIVER(cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)address) != CUDA_SUCCESS) return -1;
    if (DRIVER(cuMemExportToShareableHandle, &descriptor, handle, POSIX_DESCRIPTOR, 0) != CUDA_SUCCESS)
        descriptor = -1;
    DRIVER(cuMemRelease, handle);
    return descriptor;
}

bool pieces_add_peer(CUdevice ordinal, CUdevice peer) {
    return are_known(ordinal, peer) && atomic_fetch_add(&peers[ordinal][peer], 1) == 0;
}

bool pieces_remove_peer(CUdevice ordinal, CUdevice peer) {
    return are_known(ordinal, peer) && atomic_fetch_sub(&peers[ordinal][peer], 1) == 1;
}

static void pieces_reset(void) {
    memset((void *)peers, 0, sizeof peers);
}
RESET_IN_CHILD(pieces_reset);
