/* SPDX-License-Identifier: Apache-2.0
 *
 * cuInit, the visible devices, and what a fork does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libcuda/driver.h"

struct driver driver = {.mutex = PTHREAD_MUTEX_INITIALIZER, .state = {.descriptor = -1}};

static void after_fork_in_child(void) {
    /* The mutex may be held by a thread that does not exist here, so nothing may wait for it: the phase is
     * looked at first, everywhere. */
    if (atomic_load(&driver.phase) != DRIVER_READY) return;
    atomic_store(&driver.phase, DRIVER_FORKED);
    state_abandon(&driver.state);
}

static int row_by_uuid(const char *word, size_t length) {
    const struct simulated_configuration *configuration = &driver.state.configuration;
    int found = -1;
    for (unsigned row = 0; row < configuration->device_count && length > strlen("GPU-"); row++) {
        if (strncasecmp(word, configuration->device[row].uuid_text, length) != 0) continue;
        if (found >= 0) return -1; /* ambiguous */
        found = (int)row;
    }
    return found;
}

/* "MIG-xxxxxxxx-...", the whole UUID. */
static int row_by_instance(const char *word) {
    const struct simulated_configuration *configuration = &driver.state.configuration;
    unsigned first;
    if (strlen(word) != SIMULATED_UUID_TEXT - 1 || sscanf(word + strlen("MIG-"), "%2x", &first) != 1)
        return -1;
    for (unsigned row = 0; row < configuration->device_count; row++) {
        const struct simulated_device *device = &configuration->device[row];
        if (device->uuid[0] != (first ^ INSTANCE_BIT)) continue;
        if (strcasecmp(word + strlen("MIG-xx"), device->uuid_text + strlen("GPU-xx")) == 0) return (int)row;
    }
    return -1;
}

static int row_by_index(const char *word) {
    char *end = NULL;
    long index = strtol(word, &end, 10);
    bool valid = end != word && index >= 0 && index < (long)driver.state.configuration.device_count;
    return valid ? (int)index : -1;
}

/* As driver 580.159 does: indices or beginnings of UUIDs, as the first entry is; the first invalid entry ends
 * the list, and what stands before it stays visible. */
CUresult driver_choose_devices(const char *list) {
    driver.device_count = 0;
    unsigned count = driver.state.configuration.device_count;
    for (unsigned row = 0; list == NULL && row < count; row++) driver.row[driver.device_count++] = row;
    bool uuids = list != NULL && strncmp(list, "GPU-", strlen("GPU-")) == 0;
    bool seen[SIMULATED_DEVICES_MAX] = {false};
    driver.instance = list != NULL && strncmp(list, "MIG-", strlen("MIG-")) == 0;
    if (driver.instance) {
        int row = row_by_instance(list);
        if (row < 0) return CUDA_ERROR_NO_DEVICE;
        driver.row[driver.device_count++] = (unsigned)row;
        return CUDA_SUCCESS;
    }
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ",");
        int row = uuids ? row_by_uuid(list, length) : row_by_index(list);
        if (row < 0) break;
        if (seen[row]) return CUDA_ERROR_INVALID_DEVICE;
        seen[row] = true;
        driver.row[driver.device_count++] = (unsigned)row;
        list += length + (list[length] == ',');
    }
    return driver.device_count == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

/* driver.mutex held. */
static CUresult initialise(void) {
    static bool opened; /* and never again, even if cuInit fails later: the descriptor must not be closed */
    if (!opened) {
        int error = state_open(&driver.state);
        if (error == -ENOENT) return CUDA_ERROR_NO_DEVICE;
        if (error != 0) return CUDA_ERROR_SYSTEM_NOT_READY;
        if (pthread_atfork(NULL, NULL, after_fork_in_child) != 0) return CUDA_ERROR_UNKNOWN;
        opened = true;
    }
    CUresult result = driver_choose_devices(getenv("CUDA_VISIBLE_DEVICES"));
    if (result != CUDA_SUCCESS) return result;
    if (state_claim_slot(&driver.state) != 0) return CUDA_ERROR_SYSTEM_NOT_READY;
    for (int device = 0; device < driver.device_count; device++) {
        driver.primary[device] = (struct context){.primary = true, .device = device};
    }
    atomic_store(&driver.phase, DRIVER_READY);
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) {
    if (atomic_load(&driver.phase) == DRIVER_FORKED) return CUDA_ERROR_NOT_INITIALIZED;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); /* files are read */
    pthread_mutex_lock(&driver.mutex);
    bool ready = atomic_load(&driver.phase) == DRIVER_READY;
    CUresult result = driver_leave(ready ? CUDA_SUCCESS : initialise());
    pthread_setcancelstate(before, &before);
    return result;
}

extern void simulated_step(const char *call) __attribute__((weak, visibility("default")));

/* Not for the driver's own helpers, from which calls may come too. */
void driver_step(const char *call) {
    if (simulated_step && call[0] == 'c' && call[1] == 'u') simulated_step(call);
}

CUresult(driver_enter)(void) {
    if (atomic_load_explicit(&driver.phase, memory_order_acquire) != DRIVER_READY) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    driver_wait_while_stopped();
    pthread_mutex_lock(&driver.mutex);
    return CUDA_SUCCESS;
}

CUresult driver_enter_device(CUdevice device) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    return device >= 0 && device < driver.device_count ? CUDA_SUCCESS
                                                       : driver_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult(driver_enter_context)(struct context **context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *context = context_current();
    if (*context == NULL) return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!(*context)->alive) return driver_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return (*context)->error == CUDA_SUCCESS ? CUDA_SUCCESS : driver_leave((*context)->error);
}

CUresult driver_leave(CUresult result) {
    pthread_mutex_unlock(&driver.mutex);
    return result;
}
