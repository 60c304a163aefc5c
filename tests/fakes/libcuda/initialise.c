/* SPDX-License-Identifier: Apache-2.0
 *
 * cuInit, the visible devices, and what a fork does.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct driver driver = {.mutex = PTHREAD_MUTEX_INITIALIZER, .state = {.descriptor = -1}};

static void after_fork_in_child(void) {
    /* The mutex may be held by a thread that does not exist here, so nothing may wait for it: the phase is
     * looked at first, everywhere. */
    if (atomic_load(&driver.phase) != DRIVER_READY) return;
    atomic_store(&driver.phase, DRIVER_FORKED);
    state_abandon(&driver.state);
}

/* A row of `devices` by index or by an unambiguous beginning of its UUID; -1 if there is none. */
static int find_row(const char *word) {
    const struct simulated_configuration *configuration = &driver.state.configuration;
    char *end = NULL;
    long index = strtol(word, &end, 10);
    if (end != word && *end == '\0') {
        return index >= 0 && index < (long)configuration->device_count ? (int)index : -1;
    }
    int found = -1;
    for (unsigned row = 0; row < configuration->device_count && strncmp(word, "GPU-", 4) == 0; row++) {
        if (strncasecmp(word, configuration->device[row].uuid_text, strlen(word)) != 0) continue;
        if (found >= 0) return -1;
        found = (int)row;
    }
    return found;
}

void driver_choose_devices(const char *list) {
    driver.device_count = 0;
    if (list == NULL) {
        for (unsigned row = 0; row < driver.state.configuration.device_count; row++) {
            driver.row[driver.device_count++] = row;
        }
        return;
    }
    bool seen[SIMULATED_DEVICES_MAX] = {false};
    while (*list != '\0') {
        char word[64];
        size_t length = strcspn(list, ",");
        if (length >= sizeof word) return;
        memcpy(word, list, length);
        word[length] = '\0';
        int row = find_row(word);
        if (row < 0) return; /* what stands before the first invalid entry stays visible */
        if (seen[row]) {
            driver.device_count = 0; /* a device named twice: none is visible */
            return;
        }
        seen[row] = true;
        driver.row[driver.device_count++] = (unsigned)row;
        list += length + (list[length] == ',');
    }
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
    driver_choose_devices(getenv("CUDA_VISIBLE_DEVICES"));
    if (driver.device_count == 0) return CUDA_ERROR_NO_DEVICE;
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
    pthread_mutex_lock(&driver.mutex);
    bool ready = atomic_load(&driver.phase) == DRIVER_READY;
    return driver_leave(ready ? CUDA_SUCCESS : initialise());
}

CUresult driver_enter(void) {
    if (atomic_load_explicit(&driver.phase, memory_order_acquire) != DRIVER_READY) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    pthread_mutex_lock(&driver.mutex);
    return CUDA_SUCCESS;
}

CUresult driver_enter_device(CUdevice device) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    return device >= 0 && device < driver.device_count ? CUDA_SUCCESS
                                                       : driver_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult driver_enter_context(struct context **context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *context = context_current();
    if (*context == NULL) return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    return (*context)->alive ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

CUresult driver_leave(CUresult result) {
    pthread_mutex_unlock(&driver.mutex);
    return result;
}
