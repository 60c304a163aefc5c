/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory by handles. A shareable handle is the descriptor of a memfd that names the memory; the
 * memory itself stays counted at the process that made it.
 */
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libcuda/memory/virtual.h"
#include "simulated/lock.h"

#define CLOSE_ON_EXEC 1u /* MFD_CLOEXEC */
#define SHARED_MAGIC  UINT64_C(0x5953485055504743)

struct shared_physical {
    uint64_t magic;
    uint64_t size;
    uint8_t uuid[16]; /* of the device */
    struct process_identity owner;
    CUmemGenericAllocationHandle handle; /* with the next, which memory of the owner it is */
    uint64_t serial;
};

static bool on_device(const CUmemAllocationProp *properties) {
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

void physical_end_if_unused(struct physical *physical) {
    if (physical->handles > 0 || physical->mappings != NULL || physical->aliases > 0) return;
    if (on_device(&physical->properties) && !physical->imported) {
        device_give(physical->properties.location.id, physical->size);
    }
    struct physical *original = physical->original;
    handle_free(physical);
    if (original == NULL) return;
    original->aliases--;
    physical_end_if_unused(original);
}

static struct physical *make_physical(uint64_t size, const CUmemAllocationProp *properties, bool imported) {
    static uint64_t last_serial;
    struct physical *physical = handle_new(HANDLE_PHYSICAL, sizeof *physical);
    if (physical == NULL) return NULL;
    physical->serial = ++last_serial;
    physical->size = size;
    physical->properties = *properties;
    physical->imported = imported;
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
    struct physical *physical = make_physical(size, properties, false);
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

/* A new descriptor of a file that names the memory, or -1. */
static int share(const struct physical *physical) {
    struct shared_physical shared = {
        .magic = SHARED_MAGIC,
        .size = physical->size,
        .owner = process_identity(),
        .handle = (uint64_t)(uintptr_t)physical,
        .serial = physical->serial,
    };
    unsigned row = driver.row[physical->properties.location.id];
    memcpy(shared.uuid, driver.state.configuration.device[row].uuid, sizeof shared.uuid);
    int descriptor = (int)syscall(SYS_memfd_create, "simulated-gpu-memory", CLOSE_ON_EXEC); /* glibc 2.27 */
    if (descriptor < 0) return -1;
    if (pwrite(descriptor, &shared, sizeof shared, 0) == sizeof shared) return descriptor;
    close(descriptor);
    return -1;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct physical *physical = physical_find(handle);
    bool valid = shareable != NULL && physical != NULL && flags == 0 &&
                 type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                 physical->properties.handle_types == type;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!on_device(&physical->properties)) return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    int descriptor = share(physical);
    if (descriptor < 0) return driver_leave(CUDA_ERROR_OPERATING_SYSTEM);
    memcpy(shareable, &descriptor, sizeof descriptor);
    return driver_leave(CUDA_SUCCESS);
}

/* This process's own memory, so that it is not taken for another's; or NULL. */
static struct physical *find_own(const struct shared_physical *shared) {
    struct process_identity own = process_identity();
    if (own.pid != shared->owner.pid || own.start_time != shared->owner.start_time ||
        own.pid_namespace != shared->owner.pid_namespace) {
        return NULL;
    }
    struct physical *physical = physical_find(shared->handle);
    return physical != NULL && physical->serial == shared->serial ? physical : NULL;
}

static int device_by_uuid(const uint8_t *uuid) {
    for (int device = 0; device < driver.device_count; device++) {
        const uint8_t *own = driver.state.configuration.device[driver.row[device]].uuid;
        if (memcmp(own, uuid, 16) == 0) return device;
    }
    return -1;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct shared_physical shared;
    int descriptor = (int)(uintptr_t)shareable; /* the caller's, and stays open */
    bool valid = handle != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                 pread(descriptor, &shared, sizeof shared, 0) == sizeof shared &&
                 shared.magic == SHARED_MAGIC;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct physical *own = find_own(&shared);
    if (own != NULL) { /* another handle, as on a card */
        struct physical *alias = make_physical(shared.size, &own->properties, true);
        if (alias == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        alias->original = own;
        own->aliases++;
        *handle = (uint64_t)(uintptr_t)alias;
        return driver_leave(CUDA_SUCCESS);
    }
    int device = device_by_uuid(shared.uuid);
    if (device < 0) return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handle_types = type,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    struct physical *physical = make_physical(shared.size, &properties, true);
    if (physical == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *handle = (uint64_t)(uintptr_t)physical;
    return driver_leave(CUDA_SUCCESS);
}
