/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/shown.h"

#include "base/fork_reset.h"
#include "nvml/nvml.h"
#include "scheduler/observer.h"
#include "scheduler/session.h"
#include "tables/driver.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { FRESH_MS = 1000 };

static pthread_mutex_t caching = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct answer {
    int64_t until; /* ms of CLOCK_MONOTONIC_COARSE */
    bool chosen;
    struct account_chosen devices;
} cached;

static int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Whether the scheduler chose the container's devices; *shown: whether this is one of them. */
static bool ask_about(const uint8_t *uuid, bool *shown) {
    struct observation *observation = observer_ask(uuid, false);
    bool chosen = observation && observation->figures.flags & CONVGPU_OBSERVED_CHOSEN;
    *shown = chosen && observation->figures.limit > 0;
    if (observation) observer_release(observation);
    return chosen;
}

/* In the driver's order. The first device that was not asked about, or not chosen among, ends it. */
static bool ask_about_all(struct account_chosen *devices) {
    unsigned count = 0;
    devices->count = 0;
    if (NVML(nvmlDeviceGetCount_v2, &count) != NVML_SUCCESS) return false;
    for (unsigned index = 0; index < count && devices->count < CONVGPU_MAX_DEVICES; index++) {
        nvml_device device;
        bool shown;
        uint8_t *uuid = devices->uuid[devices->count];
        if (NVML(nvmlDeviceGetHandleByIndex_v2, index, &device) != NVML_SUCCESS) continue;
        if (nvml_find_uuid(device, uuid) != NVML_SUCCESS) continue;
        if (!ask_about(uuid, &shown)) return false;
        if (shown) devices->count++;
    }
    return true;
}

bool shown_devices(struct account_chosen *devices) {
    if (session_is_open()) return account_chosen(devices);
    pthread_mutex_lock(&caching);
    struct answer answer = cached;
    pthread_mutex_unlock(&caching);
    if (milliseconds() >= answer.until) {
        answer.chosen = ask_about_all(&answer.devices);
        answer.until = milliseconds() + FRESH_MS;
        pthread_mutex_lock(&caching);
        cached = answer;
        pthread_mutex_unlock(&caching);
    }
    if (answer.chosen) *devices = answer.devices;
    return answer.chosen;
}

static void shown_reset(void) {
    caching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    cached = (struct answer){0};
}
RESET_IN_CHILD(shown_reset);
