/* SPDX-License-Identifier: Apache-2.0 */
#include "libcuda/memory/tables.h"

#define STEP (UINT64_C(2) << 20)

static uint64_t used[SIMULATED_DEVICES_MAX];

/* The first of them lie in what a context takes. */
static uint64_t steps(uint64_t size) {
    return size / STEP * STEP;
}

bool tables_take(CUdevice device, uint64_t size) {
    if (!device_take(device, steps(used[device] + size) - steps(used[device]))) return false;
    used[device] += size;
    return true;
}

void tables_give(CUdevice device, uint64_t size) {
    uint64_t before = steps(used[device]);
    used[device] -= size < used[device] ? size : used[device]; /* what ended with the contexts is not there */
    device_give(device, before - steps(used[device]));
}

void tables_end_all(CUdevice device) {
    device_give(device, steps(used[device]));
    used[device] = 0;
}
