/* SPDX-License-Identifier: Apache-2.0
 *
 * What graphs have reserved of each device.
 */
#include <stdlib.h>

#include "graph.h"

static struct {
    uint64_t reserved, most_reserved, most_used;
} memory[SIMULATED_DEVICES_MAX];

static struct graph_cache *caches;

struct graph_cache *graph_cache_of(CUdevice device, CUstream stream) {
    struct graph_cache *cache = caches;
    while (cache != NULL && (cache->device != device || cache->stream != stream)) cache = cache->next;
    if (cache != NULL) return cache;
    cache = malloc(sizeof *cache);
    if (cache == NULL) abort(); /* this is a test double */
    *cache = (struct graph_cache){.device = device, .stream = stream, .next = caches};
    caches = cache;
    return cache;
}

/* Bytes of live allocations: what is reserved and in no cache. */
static uint64_t used(CUdevice device) {
    uint64_t result = memory[device].reserved;
    for (const struct graph_cache *cache = caches; cache != NULL; cache = cache->next) {
        if (cache->device == device) result -= cache->size;
    }
    return result;
}

bool graph_cache_grow(struct graph_cache *cache, uint64_t size) {
    CUdevice device = cache->device;
    uint64_t now = used(device) + size;
    if (size > cache->size) {
        uint64_t missing = size - cache->size;
        if (!device_take(device, missing)) return false;
        cache->size = size;
        memory[device].reserved += missing;
    }
    if (memory[device].reserved > memory[device].most_reserved) {
        memory[device].most_reserved = memory[device].reserved;
    }
    if (now > memory[device].most_used) memory[device].most_used = now; /* while the graph runs */
    return true;
}

static void trim(CUdevice device) {
    for (struct graph_cache *cache = caches; cache != NULL; cache = cache->next) {
        if (cache->device != device) continue;
        device_give(device, cache->size);
        memory[device].reserved -= cache->size;
        cache->size = 0;
    }
}

void graph_end_all(CUdevice device) {
    graph_end_live(device);
    trim(device);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    trim(device);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t numbers[] = {used(device), memory[device].most_used, memory[device].reserved,
                                memory[device].most_reserved};
    bool known =
        attribute >= CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!known || value == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *(uint64_t *)value = numbers[attribute];
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void *value) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (value == NULL || *(uint64_t *)value != 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    switch (attribute) { /* only the marks of the most, and only back to now */
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        memory[device].most_used = used(device);
        return driver_leave(CUDA_SUCCESS);
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        memory[device].most_reserved = memory[device].reserved;
        return driver_leave(CUDA_SUCCESS);
    default:
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
}
