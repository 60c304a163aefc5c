/* SPDX-License-Identifier: Apache-2.0
 *
 * Multicast objects: memory of several devices to be written at once, as on a host with NVSwitch. All devices
 * are added before memory is bound; who binds earlier waits. What is bound is held until it is unbound or the
 * object ends. An object cannot be mapped here, and is exported to nobody.
 */
#include <stdlib.h>
#include <time.h>

#include "libcuda/virtual/virtual.h"

#define LOOK        1000000 /* ns after which somebody who binds looks for the devices again */
#define RECOMMENDED (UINT64_C(512) << 20)

/* Memory at a part of an object. */
struct binding {
    struct physical *physical;
    uint64_t offset, size;
    struct binding *next;
};

struct multicast {
    struct handle handle;
    CUmulticastObjectProp properties;
    bool member[SIMULATED_DEVICES_MAX];
    unsigned members;
    struct binding *bindings;
};

static CUresult check_properties(const CUmulticastObjectProp *properties) {
    if (properties == NULL || properties->devices == 0 || properties->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->devices > (unsigned)driver.device_count) return CUDA_ERROR_INVALID_DEVICE;
    if (properties->handle_types == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_PERMITTED;
    return properties->handle_types <= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *properties, int option) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (granularity == NULL || option < 0 || option > 1) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    result = check_properties(properties);
    if (result == CUDA_SUCCESS) *granularity = option == 0 ? GRANULARITY : RECOMMENDED;
    return driver_leave(result);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *properties) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    result = handle == NULL ? CUDA_ERROR_INVALID_VALUE : check_properties(properties);
    if (result != CUDA_SUCCESS) return driver_leave(result);
    if (properties->size == 0 || properties->size % GRANULARITY != 0) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct multicast *multicast = handle_new(HANDLE_MULTICAST, sizeof *multicast);
    if (multicast == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    multicast->properties = *properties;
    *handle = (uint64_t)(uintptr_t)multicast;
    return driver_leave(CUDA_SUCCESS);
}

static struct multicast *find(CUmemGenericAllocationHandle handle) {
    return handle_find(HANDLE_MULTICAST, (void *)(uintptr_t)handle);
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    struct multicast *multicast = find(handle);
    bool room =
        multicast != NULL && !multicast->member[device] && multicast->members < multicast->properties.devices;
    if (!room) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    multicast->member[device] = true;
    multicast->members++;
    return driver_leave(CUDA_SUCCESS);
}

/* Waits, without the mutex, until all devices are there. Returns NULL if there is no such object any more. */
static struct multicast *find_whole(CUmemGenericAllocationHandle handle) {
    struct multicast *multicast = find(handle);
    while (multicast != NULL && multicast->members < multicast->properties.devices) {
        pthread_mutex_unlock(&driver.mutex);
        nanosleep(&(struct timespec){.tv_nsec = LOOK}, NULL);
        pthread_mutex_lock(&driver.mutex);
        multicast = find(handle);
    }
    return multicast;
}

static bool granular(uint64_t offset, uint64_t size, uint64_t most) {
    return size != 0 && size % GRANULARITY == 0 && offset % GRANULARITY == 0 && offset <= most &&
           size <= most - offset;
}

static struct binding **binding_at(struct multicast *multicast, CUdevice device, uint64_t offset,
                                   uint64_t size) {
    struct binding **link = &multicast->bindings;
    while (*link != NULL && ((*link)->physical->properties.location.id != device ||
                             (*link)->offset >= offset + size || offset >= (*link)->offset + (*link)->size)) {
        link = &(*link)->next;
    }
    return link;
}

static CUresult bind(struct multicast *multicast, uint64_t offset, struct physical *physical,
                     uint64_t memory_offset, uint64_t size) {
    bool fits = granular(offset, size, multicast->properties.size) &&
                granular(memory_offset, size, physical->size) && on_device(&physical->properties);
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = physical->properties.location.id;
    if (!multicast->member[device]) return CUDA_ERROR_INVALID_DEVICE;
    /* What others may get can be bound only to what others may have. */
    if (multicast->properties.handle_types != 0 && physical->properties.handle_types == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (*binding_at(multicast, device, offset, size) != NULL) return CUDA_ERROR_INVALID_VALUE;
    struct binding *binding = malloc(sizeof *binding);
    if (binding == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = (struct binding){physical, offset, size, multicast->bindings};
    multicast->bindings = binding;
    physical->aliases++;
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                            unsigned long long flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct multicast *multicast = find_whole(handle);
    struct physical *physical = physical_find(memory);
    bool valid = multicast != NULL && physical != NULL && flags == 0;
    return driver_leave(valid ? bind(multicast, offset, physical, memory_offset, size)
                              : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address,
                             size_t size, unsigned long long flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct multicast *multicast = find_whole(handle);
    const struct block *mapping = mapping_at(address);
    bool valid = multicast != NULL && mapping != NULL && flags == 0;
    return driver_leave(valid ? bind(multicast, offset, mapping->owner, address - mapping->address, size)
                              : CUDA_ERROR_INVALID_VALUE);
}

static void unbind(struct binding **link) {
    struct binding *binding = *link;
    struct physical *physical = binding->physical;
    *link = binding->next;
    free(binding);
    physical->aliases--;
    physical_end_if_unused(physical);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t size) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    struct multicast *multicast = find(handle);
    if (multicast == NULL || !granular(offset, size, multicast->properties.size)) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct binding **link = binding_at(multicast, device, offset, size);
    bool same = *link != NULL && (*link)->offset == offset && (*link)->size == size;
    if (same) unbind(link);
    return driver_leave(same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

bool multicast_release(CUmemGenericAllocationHandle handle) {
    struct multicast *multicast = find(handle);
    if (multicast == NULL) return false;
    while (multicast->bindings != NULL) unbind(&multicast->bindings);
    handle_delete(multicast);
    return true;
}
