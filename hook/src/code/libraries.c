/* SPDX-License-Identifier: Apache-2.0
 *
 * `promising` of a context is held while variables are charged, which may pause; what frees memory does not
 * take it.
 */
#include "code/libraries.h"

#include "base/fork_reset.h"
#include "code/device_runtime.h"
#include "code/promise.h"

#include <pthread.h>

enum { LOCKS = 64 };
enum { FORM_PLAIN, FORM_DEVICE_RUNTIME }; /* of entries in `libraries` */
static pthread_mutex_t promising[LOCKS] = {[0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};
static struct allocations libraries = ALLOCATIONS_INITIALIZER; /* by handle; `value`: bytes of variables */

void libraries_add(uint64_t library, struct image_needs needs) {
    struct allocation replaced, entry = {.address = library, .value = needs.variables};
    if (needs.variables == 0 && !needs.device_runtime) return;
    entry.form = needs.device_runtime ? FORM_DEVICE_RUNTIME : FORM_PLAIN;
    if (needs.device_runtime) device_runtime_begin();
    if (!allocations_insert(&libraries, entry, &replaced) && needs.device_runtime) device_runtime_end();
}

bool libraries_remove(uint64_t library, struct allocation *removed) {
    return allocations_remove(&libraries, library, removed);
}

void libraries_removed(struct allocation removed, bool done) {
    struct allocation replaced;
    if (!done && allocations_insert(&libraries, removed, &replaced)) return;
    if (removed.form == FORM_DEVICE_RUNTIME) device_runtime_end();
}

CUresult libraries_promise(int device, CUcontext context, const char *call, uint64_t library) {
    struct promise promise = {PROMISE_VARIABLES, device, context, library};
    struct allocation entry;
    CUresult result = CUDA_SUCCESS;
    if (!allocations_find(&libraries, library, &entry)) return result;
    if (entry.form == FORM_DEVICE_RUNTIME) result = device_runtime_promise(device, context, call);
    if (result != CUDA_SUCCESS || entry.value == 0 || promises_know(&promise)) return result;
    pthread_mutex_t *lock = &promising[(uint64_t)(uintptr_t)context * UINT64_C(0x9e3779b97f4a7c15) >> 58];
    pthread_mutex_lock(lock);
    if (!promises_know(&promise)) result = promise_make(&promise, call, entry.value);
    pthread_mutex_unlock(lock);
    return result;
}

static bool calls_device_runtime(uint64_t library) {
    struct allocation entry;
    return library != 0 && allocations_find(&libraries, library, &entry) && entry.form == FORM_DEVICE_RUNTIME;
}

void libraries_settle(const struct sample *in, uint64_t library) {
    if (calls_device_runtime(library)) device_runtime_settle(in);
}

CUresult libraries_promise_here(const char *call, uint64_t library) {
    if (!calls_device_runtime(library)) return CUDA_SUCCESS;
    struct sample here = sample_take();
    return here.device < 0 ? CUDA_SUCCESS : libraries_promise(here.device, here.context, call, library);
}

static void libraries_reset(void) {
    for (int each = 0; each < LOCKS; each++) promising[each] = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&libraries);
}
RESET_IN_CHILD(libraries_reset);
