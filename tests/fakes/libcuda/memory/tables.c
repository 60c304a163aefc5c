/* SPDX-License-Identifier: Apache-2.0 */
#include "libcuda/memory/tables.h"

#define STEP (UINT64_C(2) << 20)

static uint64_t used[SIMULATED_DEVICES_MAX];

/* The first of them lie in what a context takes. */
static uint64_t steps(uint64_t size) {
    return size / STEP * STEP;
}

/* NVML lists none of it for the process. */
static void give(CUdevice device, uint64_t size) {
    state_unlist(&driver.state, driver.row[device], -(int64_t)size);
    device_give(device, size);
}

bool tables_take(CUdevice device, uint64_t size) {
    uint64_t taken = steps(used[device] + size) - steps(used[device]);
    if (!device_take(device, taken)) return false;
    state_unlist(&driver.state, driver.row[device], (int64_t)taken);
    used[device] += size;
    return true;
}

void tables_give(CUdevice device, uint64_t size) {
    uint64_t before = steps(used[device]);
    used[device] -= size < used[device] ? size : used[device]; /* what ended with the contexts is not there */
    give(device, before - steps(used[device]));
}

void tables_end_all(CUdevice device) {
    give(device, steps(used[device]));
    used[device] = 0;
}
