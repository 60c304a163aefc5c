/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory by handles.
 */
#include <unistd.h>

#include "libcuda/virtual/virtual.h"
#include "libcuda/work/contents.h"
#include "simulated/exports.h"

bool on_device(const CUmemAllocationProp *properties) {
    return properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

static CUresult check_properties(const CUmemAllocationProp *properties) {
    if (properties == NULL || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUmemLocation *location = &properties->location;
    bool host = location->type == CU_MEM_LOCATION_TYPE_HOST;
    bool numa = location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location->id == 0;
    int shareable = host ? CU_MEM_HANDLE_TYPE_NONE : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (properties->handle_types < 0) return CUDA_ERROR_INVALID_VALUE;
    if (properties->handle_types == CU_MEM_HANDLE_TYPE_FABRIC && !host) return CUDA_ERROR_NOT_PERMITTED;
    if (properties->handle_types > shareable) return CUDA_ERROR_INVALID_VALUE;
    if (host || numa) return CUDA_SUCCESS;
    if (!on_device(properties)) return CUDA_ERROR_INVALID_VALUE;
    bool known = location->id >= 0 && location->id < driver.device_count;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       int option) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (granularity == NULL || option < 0 || option > 1) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    result = check_properties(properties);
    if (result == CUDA_SUCCESS) *granularity = GRANULARITY;
    return driver_leave(result);
}

struct physical *physical_find(CUmemGenericAllocationHandle handle) {
    return handle_find(HANDLE_PHYSICAL, (void *)(uintptr_t)handle);
}

/* What it holds of the device, and of files. */
static void give_back(const struct physical *physical) {
    if (physical->contents >= 0) close(physical->contents);
    if (physical->reference >= 0) close(physical->reference);
    bool exported = physical->exported != NOT_EXPORTED;
    if (physical->imported && exported) {
        export_closed(&driver.state, physical->exported);
    } else if (exported) {
        export_leave(&driver.state, physical->exported);
    } else if (on_device(&physical->properties) && !physical->imported) {
        device_give(physical->properties.location.id, physical->size);
    }
}

void physical_end_if_unused(struct physical *physical) {
    if (physical->handles > 0 || physical->mappings != NULL || physical->aliases > 0) return;
    give_back(physical);
    struct physical *original = physical->original;
    handle_free(physical);
    if (original == NULL) return;
    original->aliases--;
    physical_end_if_unused(original);
}

struct physical *physical_make(uint64_t size, const CUmemAllocationProp *properties, bool imported) {
    static uint64_t last_serial;
    struct physical *physical = handle_new(HANDLE_PHYSICAL, sizeof *physical);
    if (physical == NULL) return NULL;
    physical->serial = ++last_serial;
    physical->size = size;
    physical->properties = *properties;
    physical->imported = imported;
    physical->contents = -1;
    physical->reference = -1;
    physical->exported = NOT_EXPORTED;
    physical->handles = 1;
    return physical;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || size == 0 || size % GRANULARITY != 0 || flags != 0) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = check_properties(properties);
    if (result != CUDA_SUCCESS) return driver_leave(result);
    if (on_device(properties) && !device_take(properties->location.id, size)) {
        driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        return refuse_memory();
    }
    struct physical *physical = physical_make(size, properties, false);
    if (physical == NULL) {
        if (on_device(properties)) device_give(properties->location.id, size);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *handle = (uint64_t)(uintptr_t)physical;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct physical *physical = physical_find(handle);
    if (physical == NULL && multicast_release(handle)) return driver_leave(CUDA_SUCCESS);
    if (physical == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (--physical->handles == 0) handle_forget(physical);
    physical_end_if_unused(physical);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct block *mapping = mapping_at((uint64_t)(uintptr_t)address);
    if (handle == NULL || mapping == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct physical *physical = mapping->owner;
    if (physical->handles++ == 0) handle_remember(physical);
    *handle = (uint64_t)(uintptr_t)physical;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle handle) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct physical *physical = physical_find(handle);
    if (physical == NULL || properties == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *properties = physical->properties;
    return driver_leave(CUDA_SUCCESS);
}
