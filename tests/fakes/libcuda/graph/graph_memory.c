/* SPDX-License-Identifier: Apache-2.0
 *
 * What graphs have reserved of each device.
 */
#include <stdlib.h>

#include "libcuda/graph/graph.h"

#define STEP (UINT64_C(32) << 20) /* as on driver 580.159 */

static struct {
    uint64_t reserved, most_reserved;
    uint64_t cached; /* of what is reserved: bytes that no launch holds */
} memory[SIMULATED_DEVICES_MAX];

struct graph_hold *graph_hold(CUdevice device, uint64_t size) {
    if (size > UINT64_MAX - STEP) return NULL;
    uint64_t whole = (size + STEP - 1) / STEP * STEP;
    uint64_t missing = whole > memory[device].cached ? whole - memory[device].cached : 0;
    if (missing > 0 && !device_take(device, missing)) return NULL;
    struct graph_hold *hold = malloc(sizeof *hold);
    if (hold == NULL) abort(); /* this is a test double */
    *hold = (struct graph_hold){.device = device, .size = whole};
    memory[device].reserved += missing;
    memory[device].cached += missing;
    memory[device].cached -= whole;
    if (memory[device].reserved > memory[device].most_reserved) {
        memory[device].most_reserved = memory[device].reserved;
    }
    return hold;
}

void graph_release(struct graph_hold *hold) {
    if (hold->live > 0) return;
    memory[hold->device].cached += hold->size;
    free(hold);
}

static void trim(CUdevice device) {
    device_give(device, memory[device].cached);
    memory[device].reserved -= memory[device].cached;
    memory[device].cached = 0;
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
    /* "Used" is what the addresses of graphs are backed with, and that lasts until it is trimmed. */
    const uint64_t numbers[] = {memory[device].reserved, memory[device].most_reserved,
                                memory[device].reserved, memory[device].most_reserved};
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
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        memory[device].most_reserved = memory[device].reserved;
        return driver_leave(CUDA_SUCCESS);
    default:
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
}
