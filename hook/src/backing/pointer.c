/* SPDX-License-Identifier: Apache-2.0
 *
 * What an address belongs to: of a backed range the answers of cuMemAlloc, where the driver would tell of a
 * piece, or of nothing while it is out. Two stay as they are, for they are true: such memory has no handle of
 * the older IPC, and no network card reaches it.
 */
#include "backing/ranges.h"
#include "backing/sharing.h"

#include <string.h>

/* CUpointer_attribute, as far as we answer. */
enum attribute {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE = 2,
    POINTER_DEVICE_POINTER = 3,
    POINTER_HOST_POINTER = 4,
    POINTER_TOKENS = 5,
    POINTER_SYNC_MEMOPS = 6,
    POINTER_BUFFER_ID = 7,
    POINTER_ORDINAL = 9,
    POINTER_RANGE_START = 11,
    POINTER_RANGE_SIZE = 12,
    POINTER_MAPPED = 13,
    POINTER_HANDLE_TYPES = 14,
    POINTER_ACCESS = 16,
    POINTER_POOL = 17,
    POINTER_MAPPING_SIZE = 18,
    POINTER_MAPPING_START = 19,
    POINTER_BLOCK_ID = 20,
    POINTER_DECOMPRESSION = 21,
};
enum { DEVICE_MEMORY = 2, READ_WRITE = 3 };
#define OWN_IDS (UINT64_C(1) << 62) /* the driver's are small numbers */

/* A copy of what is known of a range, and whether the driver knows nothing of the address now. */
struct description {
    struct range range;
    CUdeviceptr address;
    bool away;
};

static bool describe(CUdeviceptr address, struct description *description) {
    if (ranges_is_empty()) return false;
    ranges_lock();
    const struct range *range = ranges_at(address);
    bool live = range && range->state == RANGE_LIVE && address - range->address < range->asked;
    if (live) {
        description->range = *range;
        description->address = address;
        description->away = range_is_out(range, (uint32_t)((address - range->address) / CONVGPU_PIECE_SIZE));
    }
    ranges_unlock();
    return live;
}

static void write64(void *data, uint64_t value) {
    memcpy(data, &value, sizeof value);
}

static void write32(void *data, uint32_t value) {
    memcpy(data, &value, sizeof value);
}

/* What differs from the driver's answer about a piece. */
static void correct(const struct description *description, int attribute, void *data) {
    const struct range *range = &description->range;
    switch (attribute) {
    case POINTER_CONTEXT:
        write64(data, (uint64_t)(uintptr_t)range->context);
        break;
    case POINTER_RANGE_START:
    case POINTER_MAPPING_START:
        write64(data, range->address);
        break;
    case POINTER_RANGE_SIZE:
    case POINTER_MAPPING_SIZE:
        write64(data, range->asked);
        break;
    case POINTER_BUFFER_ID:
    case POINTER_BLOCK_ID:
        write64(data, OWN_IDS + range->id);
        break;
    case POINTER_HANDLE_TYPES:
        write32(data, 0); /* of 32 or 64 bits: the driver's 1 is in these */
        break;
    default:
        break;
    }
}

/* The driver's part of the answer about a piece that is on the device, for one that is out. False: it would
 * refuse. */
static bool stand_in(const struct description *description, int attribute, void *data) {
    switch (attribute) {
    case POINTER_MEMORY_TYPE:
        write32(data, DEVICE_MEMORY);
        return true;
    case POINTER_DEVICE_POINTER:
        write64(data, description->address);
        return true;
    case POINTER_ORDINAL:
        write32(data, (uint32_t)description->range.ordinal);
        return true;
    case POINTER_ACCESS:
        write32(data, READ_WRITE);
        return true;
    case POINTER_POOL:
        write64(data, 0);
        return true;
    case POINTER_HOST_POINTER:
    case POINTER_TOKENS:
        return false;
    default:
        if (attribute < POINTER_CONTEXT || attribute > POINTER_DECOMPRESSION) return false;
        *(bool *)data = attribute == POINTER_MAPPED;
        return true;
    }
}

static CUresult answer(const struct description *description, int attribute, void *data) {
    CUresult result = CUDA_SUCCESS;
    if (!description->away)
        result = DRIVER(cuPointerGetAttribute, data, attribute, description->address);
    else if (!stand_in(description, attribute, data))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) correct(description, attribute, data);
    return result;
}

CUresult hooked_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
    struct description description;
    if (!data || !describe(address, &description))
        return DRIVER(cuPointerGetAttribute, data, attribute, address);
    return answer(&description, attribute, data);
}

/* An attribute that the driver would refuse is 0 here, and no error. */
CUresult hooked_cuPointerGetAttributes(unsigned count, int *attributes, void **data, CUdeviceptr address) {
    struct description description;
    bool ours = attributes && data && describe(address, &description);
    if (!ours || !description.away) {
        CUresult result = DRIVER(cuPointerGetAttributes, count, attributes, data, address);
        for (unsigned index = 0; ours && result == CUDA_SUCCESS && index < count; index++)
            correct(&description, attributes[index], data[index]);
        return result;
    }
    for (unsigned index = 0; index < count; index++)
        if (answer(&description, attributes[index], data[index]) != CUDA_SUCCESS &&
            attributes[index] == POINTER_HOST_POINTER)
            write64(data[index], 0);
    return CUDA_SUCCESS;
}

CUresult hooked_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    struct description description;
    if (!describe(address, &description)) return DRIVER(cuMemGetAddressRange_v2, base, size, address);
    if (base) *base = description.range.address;
    if (size) *size = description.range.asked;
    return CUDA_SUCCESS;
}

/* The driver has every piece do it, of a range that does not leave any more. */
CUresult hooked_cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
    struct description description;
    uint64_t size;
    if (!describe(address, &description)) return DRIVER(cuPointerSetAttribute, value, attribute, address);
    CUresult result = sharing_fix(address, "cuPointerSetAttribute");
    for (uint32_t index = 0; result == CUDA_SUCCESS && index < range_pieces(&description.range); index++)
        result =
            DRIVER(cuPointerSetAttribute, value, attribute, range_piece(&description.range, index, &size));
    return result;
}

/* The form of CUDA 2 knows addresses below 4 GiB, where no range is. */
CUresult hooked_cuMemGetAddressRange(uint32_t *base, unsigned *size, uint32_t address) {
    return DRIVER(cuMemGetAddressRange, base, size, address);
}
