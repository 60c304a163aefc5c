/* SPDX-License-Identifier: Apache-2.0
 *
 * `promising` is held while it is charged, which may pause; what frees memory does not take it.
 */
#include "code/device_runtime.h"

#include "base/fork_reset.h"
#include "code/promise.h"

#include <pthread.h>

#define SIZE (UINT64_C(100) << 20)
enum { LAUNCHES = 2048, EACH = 9600 };

static pthread_mutex_t promising = PTHREAD_MUTEX_INITIALIZER;

static struct promise runtime_of(int device, CUcontext context) {
    return (struct promise){.kind = PROMISE_DEVICE_RUNTIME, .device = device, .context = context};
}

CUresult device_runtime_promise(int device, CUcontext context, const char *call) {
    struct promise promise = runtime_of(device, context);
    CUresult result = CUDA_SUCCESS;
    if (promises_know(&promise)) return result;
    pthread_mutex_lock(&promising);
    if (!promises_know(&promise)) result = promise_make(&promise, call, SIZE);
    pthread_mutex_unlock(&promising);
    return result;
}

/* Where nobody measures, the promise stands for what is taken. */
void device_runtime_settle(const struct sample *in) {
    struct promise promise = runtime_of(in->device, in->context);
    if (in->device >= 0 && in->seen) promise_withdraw(&promise, SIZE);
}

void device_runtime_failed(int device, CUcontext context) {
    struct promise promise = runtime_of(device, context);
    promise_cancel(&promise);
}

uint64_t device_runtime_launches(size_t count) {
    uint64_t bytes = 0;
    if (count <= LAUNCHES) return 0;
    return __builtin_mul_overflow(count - LAUNCHES, (uint64_t)EACH, &bytes) ? UINT64_MAX : bytes;
}

static void device_runtime_reset(void) {
    promising = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
RESET_IN_CHILD(device_runtime_reset);
