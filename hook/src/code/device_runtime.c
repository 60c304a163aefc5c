/* SPDX-License-Identifier: Apache-2.0
 *
 * `promising` of a device is held while it is charged, which may pause; what frees memory does not take it.
 * `counting` is never held while paused.
 */
#include "code/device_runtime.h"

#include "accounting/context_growth.h"
#include "base/fork_reset.h"
#include "code/promise.h"
#include "scheduler/account.h"

#include <pthread.h>

#define SIZE (UINT64_C(100) << 20)
enum { LAUNCHES = 2048, EACH = 9600 };

static pthread_mutex_t promising[CONVGPU_MAX_DEVICES] = {[0 ... CONVGPU_MAX_DEVICES - 1] =
                                                             PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER; /* guards `users`, and the end of promises */
static uint64_t users;

static struct promise runtime_of(int device, CUcontext context) {
    return (struct promise){.kind = PROMISE_DEVICE_RUNTIME, .device = device, .context = context};
}

void device_runtime_begin(void) {
    pthread_mutex_lock(&counting);
    users++;
    pthread_mutex_unlock(&counting);
}

CUresult device_runtime_promise(int device, CUcontext context, const char *call) {
    struct promise promise = runtime_of(device, context);
    CUresult result = CUDA_SUCCESS;
    if (promises_know(&promise)) return result;
    pthread_mutex_lock(&promising[device]);
    if (!promises_know(&promise)) result = promise_make(&promise, call, SIZE);
    pthread_mutex_unlock(&promising[device]);
    return result;
}

/* Whether what is taken of the promises on the device is a part of none any more. It is measured, for others
 * may have made the free memory rise meanwhile. Where nobody measures, a promise stands for what is taken. */
static bool is_seen(int device) {
    return promises_left(PROMISE_DEVICE_RUNTIME, device) > 0 && growth_look(device);
}

void device_runtime_settle(const struct sample *in) {
    struct promise promise = runtime_of(in->device, in->context);
    if (in->device >= 0 && is_seen(in->device)) promise_withdraw(&promise, SIZE);
}

void device_runtime_end(void) {
    pthread_mutex_lock(&counting);
    bool last = --users == 0;
    pthread_mutex_unlock(&counting);
    for (int device = 0; last && device < (int)CONVGPU_MAX_DEVICES; device++) {
        if (!is_seen(device)) continue;
        pthread_mutex_lock(&counting);
        uint64_t size = users == 0 ? promises_cancel(PROMISE_DEVICE_RUNTIME, device) : 0;
        pthread_mutex_unlock(&counting);
        growth_give_promised(device, size);
    }
}

uint64_t device_runtime_launches(size_t count) {
    uint64_t bytes = 0;
    if (count <= LAUNCHES) return 0;
    return __builtin_mul_overflow(count - LAUNCHES, (uint64_t)EACH, &bytes) ? UINT64_MAX : bytes;
}

static void device_runtime_reset(void) {
    for (uint32_t device = 0; device < CONVGPU_MAX_DEVICES; device++)
        promising[device] = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    counting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    users = 0;
}
RESET_IN_CHILD(device_runtime_reset);
