/* SPDX-License-Identifier: Apache-2.0
 *
 * When work begins and how long it takes.
 */
#include "libcuda/work/start.h"

#include <stdlib.h>

#include "libcuda/work/host.h"

#define LATER        UINT64_MAX
#define MIB          (UINT64_C(1) << 20)
#define SECOND       UINT64_C(1000000000)
#define PAGEABLE_OUT 3 /* so many times slower than registered memory: 16 of 55 GB/s, */
#define PAGEABLE_IN  6 /* and 9 of 55 */

/* A call of the host: in a thread, for it may last, and wait for other calls of the driver. */
struct call_of_host {
    void (*function)(void *);
    void *data;
    _Atomic unsigned references; /* the thread, and the work */
};

static void let_go(struct call_of_host *call) {
    if (atomic_fetch_sub(&call->references, 1) == 1) free(call);
}

static void *run_call(void *argument) {
    struct call_of_host *call = argument;
    call->function(call->data);
    let_go(call);
    return NULL;
}

static struct call_of_host *start_call(const struct operation *operation) {
    struct call_of_host *call = malloc(sizeof *call);
    pthread_t thread;
    if (call == NULL) abort();
    call->function = operation->call;
    call->data = operation->data;
    atomic_init(&call->references, 2);
    if (pthread_create(&thread, NULL, run_call, call) != 0) abort();
    pthread_detach(thread);
    return call;
}

void work_free(struct work *work) {
    if (work->call != NULL) let_go(work->call);
    free(work);
}

/* ns that a copy takes. */
static uint64_t copy_time(const struct operation *operation, uint64_t moves, int direction) {
    uint64_t rate = driver.state.configuration.copy_mib_per_s;
    if (rate == 0 || moves == 0) return 0;
    uint64_t host = direction == COPY_IN ? operation->from : operation->to;
    unsigned slower = host_is_registered(host) ? 1 : direction == COPY_IN ? PAGEABLE_IN : PAGEABLE_OUT;
    return (uint64_t)((double)moves * SECOND * slower / ((double)rate * MIB));
}

/* Takes the engine from `ready` on, or when it is free. Returns when the copy begins. */
static uint64_t take_engine(unsigned row, int direction, uint64_t ready, uint64_t lasts) {
    _Atomic uint64_t *engine = &driver.state.shared->engine[row][direction];
    uint64_t is_free = atomic_load(engine), start;
    do {
        start = is_free > ready ? is_free : ready;
    } while (!atomic_compare_exchange_weak(engine, &is_free, start + lasts));
    return start;
}

bool work_has_own_end(const struct operation *operation) {
    bool kernel = operation->kind == OPERATION_KERNEL &&
                  (operation->kernel == KERNEL_UNTIL || operation->kernel == KERNEL_MEET);
    return kernel || operation->kind == OPERATION_HOST;
}

static _Atomic uint32_t *host_word(const struct operation *operation) {
    return (_Atomic uint32_t *)(uintptr_t)operation->argument[0];
}

bool work_start(struct work *work) {
    struct operation *operation = &work->operation;
    int direction;
    uint64_t moves = operation_moves(operation, &direction), lasts = copy_time(operation, moves, direction);
    if (!operation_can(operation)) return false;
    work->start = work->ready;
    if (lasts > 0)
        work->start = take_engine(driver.row[work->lane.context->device], direction, work->ready, lasts);
    work->end = work_has_own_end(operation) ? LATER : work->start + lasts + operation->lasts;
    if (operation->kind == OPERATION_HOST) work->call = start_call(operation);
    bool meets = operation->kind == OPERATION_KERNEL && operation->kernel == KERNEL_MEET;
    if (meets) atomic_fetch_add(host_word(operation), 1);
    return true;
}

bool work_has_ended(struct work *work, uint64_t now) {
    const struct operation *operation = &work->operation;
    if (work->end != LATER) return work->end <= now;
    bool ended = false;
    if (operation->kind == OPERATION_HOST) {
        ended = atomic_load(&work->call->references) == 1;
    } else {
        uint32_t word = atomic_load(host_word(operation)), wanted = (uint32_t)operation->argument[1];
        ended = operation->kernel == KERNEL_MEET ? word >= wanted : word == wanted;
    }
    if (ended) work->end = now;
    return ended;
}
