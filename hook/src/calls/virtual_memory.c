/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory of cuMemCreate: charged from its creation until nothing holds it any more, neither an
 * unreleased handle nor a mapping. What other processes made and this one imported is charged to them, and
 * memory of the host to nobody.
 *
 * A handle keeps its value for as long as anything holds it (cuMemRetainAllocationHandle of a mapping returns
 * the very same), so it names the memory also after its release.
 *
 * Memory that was exported may live on under the other handle by which this process imported it (seen on an
 * H200), and nothing tells whose it is. It is given back with its last known hold, and then the driver's own
 * count is read before the next byte is handed out (context_growth.h). That count lacks it while the exported
 * descriptor is open (docs/decisions/0009).
 */
#include "accounting/allocations.h"
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "backing/sharing.h"
#include "tables/registry.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocations memory = ALLOCATIONS_INITIALIZER;   /* by handle; `value` counts what holds it */
static struct allocations mappings = ALLOCATIONS_INITIALIZER; /* by address; `value` is the handle */

/* One creation. */
struct create_request {
    uint64_t handle;
    size_t size;
    const struct memory_properties *properties;
    unsigned long long flags;
};

/* Adds `count` holds to the handle's memory, if it is ours, and gives it back with the last one. `lock` is
 * held. Cannot fail: an entry that was just taken out fits in again. */
static void virtual_memory_hold(uint64_t handle, int count) {
    struct allocation entry, replaced;
    if (!allocations_remove(&memory, handle, &entry)) return;
    entry.value += (uint64_t)(int64_t)count;
    if (entry.value > 0) {
        (void)allocations_insert(&memory, entry, &replaced);
        return;
    }
    headroom_give((int)entry.device, entry.size);
    if (entry.shared) growth_suspect((int)entry.device);
}

static CUresult virtual_memory_attempt(void *arguments) {
    struct create_request *request = arguments;
    return DRIVER(cuMemCreate, &request->handle, request->size, request->properties, request->flags);
}

/* Enters what the driver made, or gives it back to the driver. */
static CUresult virtual_memory_enter(const struct charge *charge, uint64_t handle) {
    struct allocation entry = {
        .address = handle, .size = charge->size, .device = (uint64_t)charge->device, .value = 1};
    struct allocation replaced = {0};
    pthread_mutex_lock(&lock);
    bool entered = allocations_insert(&memory, entry, &replaced);
    pthread_mutex_unlock(&lock);
    if (replaced.address != 0) headroom_give((int)replaced.device, replaced.size);
    if (entered) return CUDA_SUCCESS;
    DRIVER(cuMemRelease, handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether the memory will lie on a device; then its ordinal. */
static bool find_ordinal(const struct memory_location *location, CUdevice *ordinal) {
    *ordinal = location->type == LOCATION_PART_OF_DEVICE ? location->ordinal & 0xff : location->ordinal;
    return location->type == LOCATION_DEVICE || location->type == LOCATION_PART_OF_DEVICE;
}

/* What the driver says of a device that the container has no limit on: its own error if there is none. */
static CUresult refuse(CUdevice ordinal) {
    CUuuid uuid;
    CUresult result = DRIVER(cuDeviceGetUuid, &uuid, ordinal);
    if (result != CUDA_SUCCESS) return result;
    device_refuse(ordinal);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hooked_cuMemCreate(uint64_t *handle, size_t size, const struct memory_properties *properties,
                            unsigned long long flags) {
    struct create_request request = {.size = size, .properties = properties, .flags = flags};
    struct charge charge = {.call = "cuMemCreate"};
    CUdevice ordinal;
    CUcontext context;
    int here;
    if (!find_ordinal(&properties->location, &ordinal))
        return DRIVER(cuMemCreate, handle, size, properties, flags);
    charge.device = device_of_ordinal(ordinal);
    if (charge.device < 0) return refuse(ordinal);
    CUresult result = charge_open(&charge, charge_round(size));
    if (result != CUDA_SUCCESS) return result;
    charge.current = device_current(&context, &here) == CUDA_SUCCESS && here == charge.device;
    result = charge_make(&charge, virtual_memory_attempt, &request);
    if (result != CUDA_SUCCESS) return result;
    result = virtual_memory_enter(&charge, request.handle);
    if (result != CUDA_SUCCESS)
        charge_close(&charge);
    else
        *handle = request.handle;
    return result;
}

CUresult hooked_cuMemRelease(uint64_t handle) {
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemRelease, handle);
    if (result == CUDA_SUCCESS) virtual_memory_hold(handle, -1);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Of a backed range the program holds the memory then, which cannot leave any more. */
CUresult hooked_cuMemRetainAllocationHandle(uint64_t *handle, void *address) {
    CUresult fixed = sharing_fix((CUdeviceptr)(uintptr_t)address, "cuMemRetainAllocationHandle");
    if (fixed != CUDA_SUCCESS) return fixed;
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemRetainAllocationHandle, handle, address);
    if (result == CUDA_SUCCESS) virtual_memory_hold(*handle, 1);
    pthread_mutex_unlock(&lock);
    return result;
}

/* `lock` is held. */
static void mark_shared(uint64_t handle) {
    struct allocation entry, replaced;
    if (!allocations_remove(&memory, handle, &entry)) return;
    entry.shared = 1;
    (void)allocations_insert(&memory, entry, &replaced);
}

CUresult hooked_cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type,
                                             unsigned long long flags) {
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemExportToShareableHandle, shareable, handle, type, flags);
    if (result == CUDA_SUCCESS) mark_shared(handle);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Memory that another process made is not in the table, and charged to that process. What this process
 * exported to itself comes back under another handle, which holds nothing in our tables; a driver that gives
 * the same one has it held once more. */
CUresult hooked_cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int type) {
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemImportFromShareableHandle, handle, shareable, type);
    if (result == CUDA_SUCCESS) virtual_memory_hold(*handle, 1);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Mappings of memory that is not ours are entered too: their sizes lead through a range to be unmapped. */
CUresult hooked_cuMemMap(CUdeviceptr address, size_t size, size_t offset, uint64_t handle,
                         unsigned long long flags) {
    struct allocation entry = {.address = address, .size = size, .value = handle}, replaced = {0};
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemMap, address, size, offset, handle, flags);
    if (result == CUDA_SUCCESS) {
        if (allocations_insert(&mappings, entry, &replaced)) {
            virtual_memory_hold(handle, 1);
        } else {
            DRIVER(cuMemUnmap, address, size);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (replaced.address != 0) virtual_memory_hold(replaced.value, -1);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult hooked_cuMemUnmap(CUdeviceptr address, size_t size) {
    struct allocation entry;
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemUnmap, address, size);
    for (uint64_t done = 0; result == CUDA_SUCCESS && done < size; done += entry.size) {
        if (!allocations_remove(&mappings, address + done, &entry)) break; /* mapped before we were there */
        virtual_memory_hold(entry.value, -1);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* For allocations_visit(). */
static void virtual_memory_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    visitor->visit(&(struct live_allocation){"physical memory", (int)entry->device, entry->address,
                                             entry->size, "cuMemCreate", entry->made},
                   visitor->argument);
}

static void virtual_memory_enumerate(registry_visit *visit, void *argument) {
    allocations_visit(&memory, virtual_memory_show, &(struct registry_visitor){visit, argument});
}

static void virtual_memory_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&memory);
    allocations_reset(&mappings);
}
REGISTER_FAMILY(virtual_memory, .reset = virtual_memory_reset, .enumerate = virtual_memory_enumerate);
