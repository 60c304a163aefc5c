/* SPDX-License-Identifier: Apache-2.0 */
#include "exports/beside.h"

#include "accounting/device.h"
#include "exports/descriptors.h"
#include "exports/kept.h"
#include "exports/told.h"

enum { PIECE = 32 << 20, ORDINAL = 9 /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */ };

CUresult beside_open(struct charge *charge, CUdeviceptr address) {
    CUdeviceptr base;
    size_t size;
    int ordinal;
    if (DRIVER(cuMemGetAddressRange_v2, &base, &size, address) != CUDA_SUCCESS) return CUDA_SUCCESS;
    if (DRIVER(cuPointerGetAttribute, &ordinal, ORDINAL, address) != CUDA_SUCCESS) return CUDA_SUCCESS;
    charge->device = device_of_ordinal(ordinal);
    if (size == 0 || charge->device < 0) return CUDA_SUCCESS;
    uint64_t begin = base / PIECE * PIECE, end = (base + size + PIECE - 1) / PIECE * PIECE;
    return charge_open(charge, end - begin);
}

bool beside_keep(struct charge *charge, int descriptor) {
    uint64_t name = descriptors_new_name();
    if (charge->size == 0) return true;
    if (!told_watch(name, charge->device, charge->size, descriptor)) return false;
    kept_charge(name, charge->device, 0, charge->size);
    charge->size = 0;
    return true;
}
