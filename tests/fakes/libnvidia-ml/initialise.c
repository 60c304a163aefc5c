/* SPDX-License-Identifier: Apache-2.0
 *
 * Start and end of NVML, and questions about the system.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "libnvidia-ml/nvml.h"

struct simulated_state nvml_state = {.descriptor = -1};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned references;

static void after_fork_in_child(void) {
    /* Held by a thread that does not exist here, the mutex could not be taken again: begin afresh. */
    pthread_mutex_init(&mutex, NULL);
    references = 0;
    state_abandon(&nvml_state);
}

/* Mutex held. The state stays open after nvmlShutdown, as closing would drop libcuda.so.1's locks. */
static nvmlReturn_t open_state(void) {
    static bool fork_handled;
    if (nvml_state.descriptor >= 0) return NVML_SUCCESS;
    if (!fork_handled && pthread_atfork(NULL, NULL, after_fork_in_child) != 0) return NVML_ERROR_UNKNOWN;
    fork_handled = true;
    int error = state_open(&nvml_state);
    if (error == 0) return NVML_SUCCESS;
    if (error == -EACCES || error == -EPERM) return NVML_ERROR_NO_PERMISSION;
    return error == -ENOENT ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags; /* they choose what happens without a device, and there always is one */
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = open_state();
    if (result == NVML_SUCCESS) references++;
    return nvml_leave(result);
}

nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t result = nvml_enter();
    if (result != NVML_SUCCESS) return result;
    references--;
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvml_enter(void) {
    pthread_mutex_lock(&mutex);
    return references > 0 ? NVML_SUCCESS : nvml_leave(NVML_ERROR_UNINITIALIZED);
}

nvmlReturn_t nvml_enter_device(nvmlDevice_t device, bool arguments, unsigned *row) {
    nvmlReturn_t result = nvml_enter();
    if (result != NVML_SUCCESS) return result;
    const struct simulated_configuration *configuration = &nvml_state.configuration;
    for (*row = 0; *row < configuration->device_count; ++*row) {
        if (device == &configuration->device[*row] && arguments) return NVML_SUCCESS;
    }
    return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvml_leave(nvmlReturn_t result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvml_write_text(char *target, unsigned length, const char *text) {
    if (target == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(target, text);
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static const struct {
        nvmlReturn_t result;
        const char *text;
    } results[] = {
#define DECLARE_TEXT(name, number, text) {name, text},
        NVML_RESULTS(DECLARE_TEXT)};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i].result == result) return results[i].text;
    }
    return "Unknown Error";
}

static nvmlReturn_t system_text(char *target, unsigned length, const char *text) {
    nvmlReturn_t result = nvml_enter();
    return result != NVML_SUCCESS ? result : nvml_leave(nvml_write_text(target, length, text));
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned length) {
    return system_text(text, length, "simulated");
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned length) {
    return system_text(text, length, "13.simulated");
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (version == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *version = SIMULATED_CUDA_VERSION; /* answered without nvmlInit, too */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}
