/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory of cuMemCreate: charged from its creation until nothing holds it any more, neither an
 * unreleased handle nor a mapping. What other processes made and this one imported is charged to them, and
 * memory of the host to nobody.
 *
 * A handle keeps its value for as long as anything holds it (cuMemRetainAllocationHandle of a mapping returns
 * the very same), so it names the memory also after its release.
 *
 * Exported memory stays while anybody has a descriptor of it, and the driver counts it for nobody once it is
 * released. So the last handle of it stays the driver's as long (docs/decisions/0205). It may also live on
 * under the other handle by which this process imported it (seen on an H200), and nothing tells whose it is:
 * it is given back with its last known hold, and then the driver's own count is read before the next byte is
 * handed out (context_growth.h).
 */
#include "accounting/allocations.h"
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "backing/sharing.h"
#include "exports/descriptors.h"
#include "exports/kept.h"
#include "exports/told.h"
#include "mapped/page_tables.h"
#include "tables/registry.h"

#include <pthread.h>
#include <unistd.h>

enum { POSIX_DESCRIPTOR = 1 };

/* What holds memory, as `value` counts it: the program's handles below, mappings and what we keep above. */
static const uint64_t HANDLE = 1, HANDLES = UINT32_MAX, OTHER = UINT64_C(1) << 32;
/* Of a handle's name for its descriptors (exports/descriptors.h). It is not given again while it is kept. */
static const uint64_t NAME = UINT64_C(1) << 63;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocations memory = ALLOCATIONS_INITIALIZER; /* by handle; `value` counts what holds it */
/* By address; `value` is the handle, `form` says whether it is memory of the host, and `hidden` that its page
 * tables are counted. */
static struct allocations mappings = ALLOCATIONS_INITIALIZER;
/* Handles that the program has released, and the driver has not. */
static struct kept kept;

/* One creation. */
struct create_request {
    uint64_t handle;
    size_t size;
    const struct memory_properties *properties;
    unsigned long long flags;
};

/* Adds holds to the handle's memory (less: as unsigned arithmetic has it), if it is ours, and gives it back
 * with the last one. `lock` is held. Cannot fail: an entry that was just taken out fits in again. */
static void virtual_memory_hold(uint64_t handle, uint64_t holds) {
    struct allocation entry, replaced;
    if (!allocations_remove(&memory, handle, &entry)) return;
    entry.value += holds;
    if (entry.value > 0) {
        (void)allocations_insert(&memory, entry, &replaced);
        return;
    }
    if (entry.size > 0) headroom_give((int)entry.device, entry.size);
    if (entry.shared) growth_suspect((int)entry.device);
}

static CUresult virtual_memory_attempt(void *arguments) {
    struct create_request *request = arguments;
    return DRIVER(cuMemCreate, &request->handle, request->size, request->properties, request->flags);
}

/* Enters what the driver made, or gives it back to the driver. */
static CUresult virtual_memory_enter(const struct charge *charge, uint64_t handle) {
    struct allocation entry = {
        .address = handle, .size = charge->size, .device = (uint64_t)charge->device, .value = HANDLE};
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

/* Keeps the program's last handle instead of releasing it, if anybody has a descriptor of its memory. `lock`
 * is held. */
static bool virtual_memory_keep(uint64_t handle) {
    struct allocation entry;
    if (!allocations_find(&memory, handle, &entry) || !entry.shared) return false;
    if ((entry.value & HANDLES) != HANDLE || kept_has(&kept, handle | NAME)) return false;
    if (!descriptors_may_be_open(handle | NAME)) return false;
    if (!kept_enter(&kept, (struct allocation){.address = handle | NAME})) return false;
    virtual_memory_hold(handle, OTHER - HANDLE);
    return true;
}

/* The program has released all handles of it, and the driver none. `lock` is held. */
static bool is_released(uint64_t handle) {
    struct allocation entry;
    return kept_has(&kept, handle | NAME) && allocations_find(&memory, handle, &entry) &&
           (entry.value & HANDLES) == 0;
}

CUresult hooked_cuMemRelease(uint64_t handle) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    bool released = is_released(handle), keeps = !released && virtual_memory_keep(handle);
    if (released)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!keeps)
        result = DRIVER(cuMemRelease, handle);
    if (!keeps && result == CUDA_SUCCESS) virtual_memory_hold(handle, -HANDLE);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Nobody has a descriptor of a kept handle any more. `lock` is held. */
static void virtual_memory_let_go(const struct allocation *entry) {
    DRIVER(cuMemRelease, entry->address & ~NAME);
    virtual_memory_hold(entry->address & ~NAME, -OTHER);
}
static struct kept kept = {
    .entries = ALLOCATIONS_INITIALIZER, .open = ALLOCATIONS_INITIALIZER, .end = virtual_memory_let_go};

static void virtual_memory_unkeep(void) {
    if (kept.count == 0) return;
    pthread_mutex_lock(&lock);
    kept_reclaim(&kept);
    pthread_mutex_unlock(&lock);
}

static void virtual_memory_reclaim(int device, bool trim) {
    (void)device;
    (void)trim;
    virtual_memory_unkeep();
}

CUresult hooked_cuMemRetainAllocationHandle(uint64_t *handle, void *address) {
    if (sharing_is_backed((CUdeviceptr)(uintptr_t)address)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemRetainAllocationHandle, handle, address);
    if (result == CUDA_SUCCESS) virtual_memory_hold(*handle, HANDLE);
    pthread_mutex_unlock(&lock);
    return result;
}

/* The driver exports nothing that was imported (CUDA_ERROR_INVALID_VALUE, seen on an H200). `lock` is held.
 */
static CUresult export_handle(int *descriptor, uint64_t handle, unsigned long long flags) {
    struct allocation entry;
    bool ours = allocations_find(&memory, handle, &entry) && entry.size > 0;
    int device = ours ? (int)entry.device : DEVICE_UNKNOWN;
    uint64_t size = ours ? entry.size : 0, expected = told_expect(device, size);
    CUresult result = DRIVER(cuMemExportToShareableHandle, descriptor, handle, POSIX_DESCRIPTOR, flags);
    if (result == CUDA_SUCCESS && !told_watch(handle | NAME, device, size, *descriptor)) {
        close(*descriptor);
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    told_expected(expected);
    return result;
}

CUresult hooked_cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type,
                                             unsigned long long flags) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (!is_released(handle))
        result = type == POSIX_DESCRIPTOR
                     ? export_handle(shareable, handle, flags)
                     : DRIVER(cuMemExportToShareableHandle, shareable, handle, type, flags);
    if (result == CUDA_SUCCESS) (void)allocations_share(&memory, handle);
    pthread_mutex_unlock(&lock);
    descriptors_start();
    return result;
}

/* For allocations_visit(): the first mapping of those that the addresses touch. */
struct first_mapping {
    uint64_t begin, end;
    struct allocation found;
};

static void find_first_mapping(const struct allocation *entry, void *argument) {
    struct first_mapping *search = argument;
    if (entry->address + entry->size <= search->begin || entry->address >= search->end) return;
    if (search->found.address == 0 || entry->address < search->found.address) search->found = *entry;
}

/* Calls `each` for every mapping that the addresses touch, until it returns false. `lock` is held. Mappings
 * mostly follow each other. */
static bool visit_mappings(CUdeviceptr address, size_t size, bool each(const struct allocation *, int),
                           int descriptor) {
    struct first_mapping search = {.begin = address, .end = address + size};
    while (search.begin < search.end) {
        search.found.address = 0;
        if (!allocations_find(&mappings, search.begin, &search.found))
            allocations_visit(&mappings, find_first_mapping, &search);
        if (search.found.address == 0) return true;
        if (!each(&search.found, descriptor)) return false;
        search.begin = search.found.address + search.found.size;
    }
    return true;
}

/* What only mappings hold, is kept from now on, until nobody has a descriptor. */
static bool mark_mapping(const struct allocation *mapping, int unused) {
    uint64_t handle;
    (void)unused;
    void *address = (void *)(uintptr_t)mapping->address;
    if (!allocations_share(&memory, mapping->value)) return true; /* not ours */
    if (DRIVER(cuMemRetainAllocationHandle, &handle, address) != CUDA_SUCCESS) return true;
    virtual_memory_hold(handle, HANDLE);
    if (virtual_memory_keep(handle)) return true;
    DRIVER(cuMemRelease, handle);
    virtual_memory_hold(handle, -HANDLE);
    return true;
}

/* Not imported: that is charged to who made it, who may end, and a dma-buf of it keeps it. */
static bool is_charged_here(const struct allocation *mapping, int unused) {
    struct allocation entry;
    (void)unused;
    return !allocations_find(&memory, mapping->value, &entry) || entry.size > 0;
}

static bool virtual_memory_mark_shared(CUdeviceptr address, size_t size) {
    struct first_mapping search = {.begin = address, .end = address + size};
    pthread_mutex_lock(&lock);
    allocations_visit(&mappings, find_first_mapping, &search);
    (void)visit_mappings(address, size, mark_mapping, -1);
    bool charged = search.found.address != 0 && visit_mappings(address, size, is_charged_here, -1);
    pthread_mutex_unlock(&lock);
    return charged;
}

/* What is imported counts beside (exports/beside.h), and that is watched and told. */
static bool watch_mapping(const struct allocation *mapping, int descriptor) {
    struct allocation entry;
    if (!allocations_find(&memory, mapping->value, &entry) || entry.size == 0) return true;
    return told_watch(mapping->value | NAME, (int)entry.device, entry.size, descriptor);
}

static bool virtual_memory_share(CUdeviceptr address, size_t size, int descriptor) {
    pthread_mutex_lock(&lock);
    bool watched = visit_mappings(address, size, watch_mapping, descriptor);
    pthread_mutex_unlock(&lock);
    return watched;
}

/* What is not in the table, holds memory of another process, or of our own under another handle: it is not
 * charged, but it may be exported again. `lock` is held. */
static void virtual_memory_imported(uint64_t handle) {
    struct allocation entry, replaced;
    if (allocations_find(&memory, handle, &entry)) {
        virtual_memory_hold(handle, HANDLE);
        return;
    }
    entry = (struct allocation){.address = handle, .value = HANDLE};
    (void)allocations_insert(&memory, entry, &replaced);
}

/* Memory that another process made is charged to that process. What this process exported to itself comes
 * back under another handle; a driver that gives the same one has it held once more. */
CUresult hooked_cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int type) {
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemImportFromShareableHandle, handle, shareable, type);
    if (result == CUDA_SUCCESS) virtual_memory_imported(*handle);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Mappings of memory that is not ours are entered too: it may be shared, and their sizes lead through a range
 * to be unmapped. */
static CUresult map(CUdeviceptr address, size_t size, size_t offset, uint64_t handle,
                    unsigned long long flags, bool host) {
    struct allocation entry = {.address = address, .size = size, .value = handle, .form = host},
                      replaced = {0};
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (!is_released(handle)) result = DRIVER(cuMemMap, address, size, offset, handle, flags);
    if (result == CUDA_SUCCESS) {
        if (allocations_insert(&mappings, entry, &replaced)) {
            virtual_memory_hold(handle, OTHER);
        } else {
            DRIVER(cuMemUnmap, address, size);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (replaced.address != 0) virtual_memory_hold(replaced.value, -OTHER);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* False: another thread has unmapped it. */
static bool count_tables(CUdeviceptr address) {
    struct allocation entry = {0}, replaced;
    pthread_mutex_lock(&lock);
    bool found = allocations_remove(&mappings, address, &entry);
    entry.hidden = 1;
    if (found) (void)allocations_insert(&mappings, entry, &replaced); /* it fits in again */
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult hooked_cuMemMap(CUdeviceptr address, size_t size, size_t offset, uint64_t handle,
                         unsigned long long flags) {
    bool host = page_tables_are_of_host(handle);
    CUresult result = map(address, size, offset, handle, flags, host);
    if (result != CUDA_SUCCESS) return result;
    result = page_tables_map("cuMemMap", address, size, host);
    if (result != CUDA_SUCCESS)
        (void)hooked_cuMemUnmap(address, size);
    else if (!count_tables(address))
        page_tables_unmap(address, size, host);
    return result;
}

/* Its memory is held once less. */
static bool end_mapping(const struct allocation *mapping, int unused) {
    struct allocation entry;
    (void)unused;
    if (!allocations_remove(&mappings, mapping->address, &entry)) return true;
    virtual_memory_hold(entry.value, -OTHER);
    if (entry.hidden) page_tables_unmap(entry.address, entry.size, entry.form);
    return true;
}

/* The driver unmaps all that lies in the range, and takes no offence at addresses where nothing is mapped. */
CUresult hooked_cuMemUnmap(CUdeviceptr address, size_t size) {
    pthread_mutex_lock(&lock);
    CUresult result = DRIVER(cuMemUnmap, address, size);
    if (result == CUDA_SUCCESS) (void)visit_mappings(address, size, end_mapping, -1);
    pthread_mutex_unlock(&lock);
    return result;
}

/* For allocations_visit(). */
static void virtual_memory_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    if (entry->size == 0) return;
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
    kept_reset(&kept);
}
REGISTER_FAMILY(virtual_memory, .reset = virtual_memory_reset, .reclaim = virtual_memory_reclaim,
                .unkeep = virtual_memory_unkeep, .mark_shared = virtual_memory_mark_shared,
                .share = virtual_memory_share, .enumerate = virtual_memory_enumerate);
