/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes are growth of the context (context_growth.h): what is charged beyond what the driver took goes
 * back with the measurement after its call. `lock` guards both tables; it is never held while paused.
 */
#include "graphs/work.h"

#include "accounting/allocations.h"
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "tables/registry.h"

#include <pthread.h>

enum { STEP = 2 << 20 }; /* by which the driver's store grows (H200, driver 580.159) */
static const char call[] = "cuGraphInstantiate";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocations execs = ALLOCATIONS_INITIALIZER;
static struct allocations stores =
    ALLOCATIONS_INITIALIZER; /* by context; `value`: bytes that it has for graphs,
                                `size`: of these, what living ones use */

static uint64_t handle(CUcontext context) {
    return (uint64_t)(uintptr_t)context;
}

/* Changes what a context has for graphs, and what they use; `lock` is held. Without memory for the record it
 * is charged again. */
static void change(CUcontext context, struct allocation store, int64_t more, int64_t used) {
    struct allocation replaced;
    store.address = handle(context);
    store.value += (uint64_t)more;
    store.size += (uint64_t)used;
    (void)allocations_insert(&stores, store, &replaced);
}

/* Bytes that are to be charged. */
static uint64_t claim(const struct graph_work *work) {
    struct allocation store = {0};
    pthread_mutex_lock(&lock);
    if (!allocations_find(&stores, handle(work->in.context), &store)) store = (struct allocation){0};
    uint64_t needed = store.size + work->size, more = 0;
    if (needed > store.value) more = (needed - store.value + STEP - 1) / STEP * STEP;
    change(work->in.context, store, (int64_t)more, (int64_t)work->size);
    pthread_mutex_unlock(&lock);
    return more;
}

/* A context that has ended has no store any more. */
static void release(CUcontext context, uint64_t charged, uint64_t used) {
    struct allocation store;
    pthread_mutex_lock(&lock);
    if (allocations_find(&stores, handle(context), &store))
        change(context, store, -(int64_t)charged, -(int64_t)used);
    pthread_mutex_unlock(&lock);
}

CUresult graph_work_open(struct graph_work *work) {
    int device = work->in.device;
    struct charge charge = {.call = call, .device = device, .current = true};
    work->charged = 0;
    if (!work->in.seen) work->size = 0; /* nobody can tell what it took */
    CUresult result = growth_charge_owed(device, call);
    if (result != CUDA_SUCCESS || work->size == 0) return result;
    uint64_t more = claim(work);
    if (more > 0) result = charge_open(&charge, more);
    if (result != CUDA_SUCCESS) {
        release(work->in.context, more, work->size);
        work->size = 0;
        return result;
    }
    work->charged = more;
    growth_add(device, more);
    return CUDA_SUCCESS;
}

void graph_work_close(const struct graph_work *work) {
    if (work->size == 0) return;
    release(work->in.context, work->charged, work->size);
    growth_give(work->in.device, work->charged);
}

/* What the driver took less than was charged: it is not there for the next graph either. */
static uint64_t spare(const struct graph_work *work) {
    uint64_t fall = sample_fall(&work->in), most = work->charged < work->size ? work->charged : work->size;
    return work->charged > fall && fall < most ? most - fall : 0;
}

static CUresult charge_taken(struct graph_work *work) {
    return work->charged > 0 ? growth_charge_now(work->in.device, call) : sample_charge_fall(&work->in, call);
}

CUresult graph_work_enter(struct graph_work *work, CUgraphExec exec) {
    uint64_t less = spare(work);
    release(work->in.context, less, less);
    struct allocation replaced, entry = {.address = (uint64_t)(uintptr_t)exec,
                                         .size = work->size - less,
                                         .device = work->in.device < 0 ? 0 : (uint64_t)work->in.device,
                                         .context = handle(work->in.context) >> 1};
    if (entry.size > 0) (void)allocations_insert(&execs, entry, &replaced); /* else it is never given back */
    return charge_taken(work);
}

CUresult graph_work_open_update(struct graph_work *work, CUgraphExec exec, uint64_t size) {
    struct allocation entry;
    bool known = allocations_find(&execs, (uint64_t)(uintptr_t)exec, &entry);
    work->size = known && size > entry.size ? 2 * (size - entry.size) : 0;
    return graph_work_open(work);
}

CUresult graph_work_enter_update(struct graph_work *work, CUgraphExec exec) {
    struct allocation entry, replaced;
    uint64_t less = spare(work);
    release(work->in.context, less, less);
    if (work->size > less && allocations_find(&execs, (uint64_t)(uintptr_t)exec, &entry)) {
        entry.size += work->size - less;
        (void)allocations_insert(&execs, entry, &replaced);
    }
    return charge_taken(work);
}

bool graph_work_leave(CUgraphExec exec, struct allocation *entry) {
    if (!allocations_remove(&execs, (uint64_t)(uintptr_t)exec, entry)) return false;
    release((CUcontext)(uintptr_t)(entry->context << 1), 0, entry->size);
    return true;
}

void graph_work_stay(const struct allocation *entry) {
    struct allocation replaced;
    release((CUcontext)(uintptr_t)(entry->context << 1), 0, -(uint64_t)entry->size);
    (void)allocations_insert(&execs, *entry, &replaced);
}

static void graph_work_mark(CUcontext context) {
    allocations_mark(&execs, handle(context));
}

static void graph_work_unmark(CUcontext context) {
    allocations_unmark(&execs, handle(context));
}

static void none(const struct allocation *entry, void *argument) {
    (void)entry, (void)argument;
}

static void graph_work_drop(CUcontext context, uint64_t *sizes) {
    struct allocation removed;
    (void)sizes; /* they are growth, and go with the contexts' */
    pthread_mutex_lock(&lock);
    (void)allocations_remove(&stores, handle(context), &removed);
    allocations_drop(&execs, handle(context), none, NULL);
    pthread_mutex_unlock(&lock);
}

static void graph_work_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&execs);
    allocations_reset(&stores);
}
REGISTER_FAMILY(graph_work, .reset = graph_work_reset, .mark = graph_work_mark, .unmark = graph_work_unmark,
                .drop = graph_work_drop);
