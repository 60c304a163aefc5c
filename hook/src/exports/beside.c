/* SPDX-License-Identifier: Apache-2.0 */
#include "exports/beside.h"

#include "accounting/device.h"
#include "exports/descriptors.h"
#include "exports/kept.h"
#include "exports/told.h"

enum { PIECE = 32 << 20 };

/* Where the allocations end that the addresses touch; of the first, where it begins. */
static CUdeviceptr find_end(CUdeviceptr address, size_t size, CUdeviceptr *begin) {
    CUdeviceptr base, at = address;
    for (size_t length; at < address + size; at = base + length) {
        if (DRIVER(cuMemGetAddressRange_v2, &base, &length, at) != CUDA_SUCCESS || length == 0) break;
        if (at == address) *begin = base;
    }
    return at;
}

CUresult beside_open(struct charge *charge, CUdeviceptr address, size_t size) {
    CUdeviceptr begin = address, end = find_end(address, size, &begin);
    if (end == address) return CUDA_SUCCESS;
    charge->device = device_of_pointer(address);
    if (charge->device < 0) return CUDA_SUCCESS;
    return charge_open(charge, (end + PIECE - 1) / PIECE * PIECE - begin / PIECE * PIECE);
}

bool beside_keep(struct charge *charge, int descriptor) {
    uint64_t name = descriptors_new_name();
    if (charge->size == 0) return true;
    if (!told_watch(name, charge->device, charge->size, descriptor)) return false;
    kept_charge(name, charge->device, 0, charge->size);
    charge->size = 0;
    return true;
}
