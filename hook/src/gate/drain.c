/* SPDX-License-Identifier: Apache-2.0 */
#include "gate/drain.h"

#include "base/background_thread.h"
#include "base/fork_reset.h"
#include "base/futex.h"
#include "gate/queue.h"
#include "tables/driver.h"
#include "tables/registry.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>

static pthread_mutex_t contexts = PTHREAD_MUTEX_INITIALIZER;
static bool started;
static _Atomic uint32_t asked;      /* number of the last wait that was asked for: the futex */
static _Atomic uint32_t over, made; /* number of the last one that is over; that was made */
static _Atomic bool given_up;

static bool is_wanted(void) {
    return !atomic_load(&given_up);
}

void drain_lock(void) {
    pthread_mutex_lock(&contexts);
}

void drain_unlock(void) {
    pthread_mutex_unlock(&contexts);
}

/* For registry_enumerate(): the context with the lowest handle above `last`. */
struct search {
    uint64_t last, found;
};

static void find_next(const struct live_allocation *allocation, void *argument) {
    struct search *search = argument;
    if (allocation->address <= search->last || strcmp(allocation->kind, REGISTRY_CONTEXT) != 0) return;
    if (search->found == 0 || allocation->address < search->found) search->found = allocation->address;
}

/* Contexts that begin meanwhile have nothing to wait for: the gate is closed. */
static void wait_for_contexts(void) {
    for (struct search search = {0}; is_wanted(); search = (struct search){.last = search.found}) {
        CUcontext popped;
        drain_lock();
        registry_enumerate(find_next, &search);
        if (search.found != 0 &&
            DRIVER(cuCtxPushCurrent_v2, (CUcontext)(uintptr_t)search.found) == CUDA_SUCCESS) {
            DRIVER(cuCtxSynchronize);
            DRIVER(cuCtxPopCurrent_v2, &popped);
        }
        drain_unlock();
        if (search.found == 0) return;
    }
}

static void *drain_serve(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "convgpu-drain");
    for (;;) {
        uint32_t number = atomic_load(&asked);
        if (number == atomic_load(&over)) {
            futex_wait(&asked, number, FUTEX_FOR_EVER);
            continue;
        }
        wait_for_contexts();
        if (is_wanted()) atomic_store(&made, number);
        atomic_store(&over, number);
        queue_wake();
    }
    return NULL;
}

uint32_t drain_ask(void) {
    if (!started) started = background_thread(drain_serve);
    if (!started) return 0;
    atomic_store(&given_up, false);
    uint32_t number = atomic_fetch_add(&asked, 1) + 1;
    futex_wake(&asked);
    return number;
}

bool drain_is_over(uint32_t number) {
    return atomic_load(&over) >= number;
}

bool drain_was_made(uint32_t number) {
    return atomic_load(&made) >= number;
}

void drain_give_up(void) {
    atomic_store(&given_up, true);
}

static void drain_reset(void) {
    contexts = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    started = false;
    asked = over = made = 0;
}
RESET_IN_CHILD(drain_reset);
