/* SPDX-License-Identifier: Apache-2.0
 *
 * Reserved addresses, and what is mapped there. Mappings are blocks (blocks.h) that begin at a multiple of
 * GRANULARITY, so the one that holds an address is found by looking at each such multiple below it.
 */
#include "libcuda/virtual/virtual.h"
#include "libcuda/memory/tables.h"
#include "libcuda/work/work.h"

#include <stdlib.h>

#define LARGEST_RANGE (UINT64_C(1) << 46)

struct reservation {
    uint64_t address, size;
    struct block *range; /* whose addresses these are */
    struct reservation *next;
};

static struct reservation *reservations;

static struct reservation *reservation_of(uint64_t address, uint64_t size) {
    struct reservation *one = reservations;
    for (; one != NULL; one = one->next) {
        if (address >= one->address && address - one->address < one->size &&
            size <= one->size - (address - one->address)) {
            return one;
        }
    }
    return NULL;
}

bool is_reserved(uint64_t address) {
    return reservation_of(address, 1) != NULL;
}

void reservation_bounds(uint64_t address, uint64_t *start, uint64_t *size) {
    const struct reservation *reservation = reservation_of(address, 1);
    if (reservation == NULL) return;
    *start = reservation->address;
    *size = reservation->size;
}

static struct block *mapping_from(uint64_t address) {
    struct block *block = blocks_find(&driver.blocks, address);
    return block != NULL && block->kind == BLOCK_MAPPING ? block : NULL;
}

struct block *mapping_at(uint64_t address) {
    const struct reservation *reservation = reservation_of(address, 1);
    if (reservation == NULL) return NULL;
    uint64_t start = address / GRANULARITY * GRANULARITY;
    for (; start >= reservation->address; start -= GRANULARITY) {
        struct block *mapping = mapping_from(start);
        if (mapping != NULL) return address - start < mapping->size ? mapping : NULL;
    }
    return NULL;
}

/* Whether the range is made of whole mappings, one after the other. */
static bool wholly_mapped(uint64_t address, uint64_t size) {
    for (uint64_t done = 0; done < size;) {
        const struct block *mapping = mapping_from(address + done);
        if (mapping == NULL || mapping->size > size - done) return false;
        done += mapping->size;
    }
    return size > 0;
}

static bool partly_mapped(uint64_t address, uint64_t size) {
    if (mapping_at(address) != NULL) return true;
    for (uint64_t done = GRANULARITY; done < size; done += GRANULARITY) {
        if (mapping_from(address + done) != NULL) return true;
    }
    return false;
}

/* Whether the range is reserved, and cuts no mapping in two. What is not mapped in it does not matter. */
static bool ends_between_mappings(uint64_t address, uint64_t size) {
    if (size == 0 || address % GRANULARITY != 0 || size % GRANULARITY != 0) return false;
    if (reservation_of(address, size) == NULL) return false;
    const struct block *first = mapping_at(address), *last = mapping_at(address + size - 1);
    return (first == NULL || first->address == address) &&
           (last == NULL || last->address + last->size == address + size);
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
    (void)hint; /* no more than that */
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    bool valid = address != NULL && size != 0 && size % GRANULARITY == 0 && flags == 0 &&
                 (alignment & (alignment - 1)) == 0;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (size > LARGEST_RANGE || alignment > LARGEST_RANGE) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t aligned = alignment > GRANULARITY ? alignment : GRANULARITY;
    uint64_t slack = aligned - GRANULARITY; /* ranges are aligned to a granule by themselves */
    struct reservation *reservation = malloc(sizeof *reservation);
    struct block *range = blocks_take_range(&driver.blocks, size + slack);
    if (reservation == NULL || range == NULL) abort();
    *reservation = (struct reservation){
        .address = (range->address + aligned - 1) / aligned * aligned,
        .size = size,
        .range = range,
        .next = reservations,
    };
    reservations = reservation;
    *address = reservation->address;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct reservation **link = &reservations;
    while (*link != NULL && ((*link)->address != address || (*link)->size != size)) link = &(*link)->next;
    struct reservation *reservation = *link;
    if (reservation == NULL || partly_mapped(address, size)) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *link = reservation->next;
    blocks_give_range(&driver.blocks, reservation->range);
    free(reservation);
    return driver_leave(CUDA_SUCCESS);
}

/* Whether something may be used in the region of this number. */
static bool is_region_used(uint64_t region) {
    for (uint64_t at = 0; at < TABLE_REGION; at += GRANULARITY) {
        const struct block *mapping = mapping_at(region * TABLE_REGION + at);
        if (mapping != NULL && mapping->access != 0) return true;
    }
    return false;
}

/* Bytes of tables of the regions that this range touches, where something may be used, or nothing; and those
 * of the mappings there that may be used, or not, of memory of the host. */
static uint64_t tables_of(uint64_t address, uint64_t size, bool used) {
    uint64_t bytes = 0;
    for (uint64_t region = address / TABLE_REGION; region <= (address + size - 1) / TABLE_REGION; region++)
        if (is_region_used(region) == used) bytes += TABLE;
    for (uint64_t at = address; at < address + size; at += GRANULARITY) {
        const struct block *mapping = mapping_at(at);
        const struct physical *physical = mapping == NULL ? NULL : mapping->owner;
        if (physical == NULL || on_device(&physical->properties)) continue;
        if ((mapping->access != 0) == used) bytes += TABLE; /* GRANULARITY is what one spans */
    }
    return bytes;
}

/* Of the first device, whatever may use it. */
static bool take_tables(uint64_t address, uint64_t size) {
    return tables_take(0, tables_of(address, size, false));
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct physical *physical = physical_find(handle);
    bool valid = physical != NULL && address % GRANULARITY == 0 && flags == 0 && size != 0 &&
                 reservation_of(address, size) != NULL;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    /* In part, as cuda.h says, driver 580.159 cannot. */
    if (offset != 0 || size != physical->size) return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    if (partly_mapped(address, size)) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    work_advance(); /* what was due before does not find it */
    struct block *mapping = blocks_add_at(&driver.blocks, address, size, physical, &physical->mappings);
    if (mapping == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    mapping->kind = BLOCK_MAPPING;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (!ends_between_mappings(address, size)) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t tables = tables_of(address, size, true);
    work_unmapping(address, size);
    for (uint64_t done = 0; done < size; done += GRANULARITY) {
        struct block *mapping = mapping_from(address + done);
        if (mapping == NULL) continue; /* nothing there, or the middle of one that is just ended */
        struct physical *physical = mapping->owner;
        blocks_remove(&driver.blocks, mapping, &physical->mappings);
        physical_end_if_unused(physical);
    }
    tables_give(0, tables - tables_of(address, size, true));
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (access == NULL || count == 0 || !wholly_mapped(address, size)) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        const CUmemLocation *location = &access[i].location;
        if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
        if (location->id < 0 || location->id >= driver.device_count) result = CUDA_ERROR_INVALID_DEVICE;
    }
    bool takes = result == CUDA_SUCCESS && access[count - 1].flags != 0;
    if (takes && !take_tables(address, size)) result = CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t tables = tables_of(address, size, true);
    for (uint64_t done = 0; result == CUDA_SUCCESS && done < size;) {
        struct block *mapping = mapping_from(address + done);
        mapping->access = access[count - 1].flags;
        done += mapping->size;
    }
    if (result == CUDA_SUCCESS && !takes) tables_give(0, tables - tables_of(address, size, true));
    return driver_leave(result);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct block *mapping = mapping_at(address);
    if (flags == NULL || location == NULL || mapping == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = (unsigned long long)mapping->access;
    return driver_leave(CUDA_SUCCESS);
}
