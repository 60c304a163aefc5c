/* SPDX-License-Identifier: Apache-2.0
 *
 * `promising` of a context is held while variables are charged, which may pause; what frees memory does not
 * take it.
 */
#include "code/libraries.h"

#include "accounting/device.h"
#include "base/fork_reset.h"
#include "code/driver_code.h"
#include "code/promise.h"
#include "scheduler/session.h"

#include <pthread.h>

enum { LOCKS = 64 };
static pthread_mutex_t promising[LOCKS] = {[0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};
static struct allocations libraries =
    ALLOCATIONS_INITIALIZER; /* by handle; `value`: bytes of variables; `size`: calls */

void libraries_add(uint64_t library, struct image_needs needs) {
    struct allocation replaced, entry = {.address = library, .size = needs.calls, .value = needs.variables};
    if (needs.variables == 0 && needs.calls == 0) return;
    if (needs.calls) driver_code_begin();
    if (!allocations_insert(&libraries, entry, &replaced) && needs.calls) driver_code_end();
}

bool libraries_remove(uint64_t library, struct allocation *removed) {
    return allocations_remove(&libraries, library, removed);
}

void libraries_removed(struct allocation removed, bool done) {
    struct allocation replaced;
    if (!done && allocations_insert(&libraries, removed, &replaced)) return;
    if (removed.size > 0) driver_code_end();
}

CUresult libraries_promise(int device, CUcontext context, const char *call, uint64_t library) {
    struct promise promise = {PROMISE_VARIABLES, device, context, library};
    struct allocation entry;
    CUresult result = CUDA_SUCCESS;
    if (!allocations_find(&libraries, library, &entry)) return result;
    if (entry.size > 0) result = driver_code_promise(device, context, call, (unsigned)entry.size);
    if (result != CUDA_SUCCESS || entry.value == 0 || promises_know(&promise)) return result;
    pthread_mutex_t *lock = &promising[(uint64_t)(uintptr_t)context * UINT64_C(0x9e3779b97f4a7c15) >> 58];
    pthread_mutex_lock(lock);
    if (!promises_know(&promise)) result = promise_make(&promise, call, entry.value);
    pthread_mutex_unlock(lock);
    return result;
}

static unsigned calls_of(uint64_t library) {
    struct allocation entry;
    return library != 0 && allocations_find(&libraries, library, &entry) ? (unsigned)entry.size : 0;
}

void libraries_settle(const struct sample *in, uint64_t library) {
    unsigned calls = calls_of(library);
    if (calls) driver_code_settle(in, calls);
}

CUresult libraries_promise_here(const char *call, uint64_t library) {
    CUcontext context;
    int device;
    if (!calls_of(library) || !session_is_open()) return CUDA_SUCCESS;
    if (device_current(&context, &device) != CUDA_SUCCESS || device < 0) return CUDA_SUCCESS;
    return libraries_promise(device, context, call, library);
}

static void libraries_reset(void) {
    for (int each = 0; each < LOCKS; each++) promising[each] = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&libraries);
}
RESET_IN_CHILD(libraries_reset);
