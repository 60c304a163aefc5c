/* SPDX-License-Identifier: Apache-2.0
 *
 * Until the driver has taken it, it is promised (promises/promises.h); then it is growth of the context.
 * `lock` guards both tables; it is never held while paused.
 */
#include "graphs/work.h"

#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "code/promise.h"
#include "tables/registry.h"

#include <pthread.h>

enum { STEP = 2 << 20, UNIT = 1 << 10 }; /* the driver's store grows by steps (H200, driver 580.159) */
static const char call[] = "cuGraphInstantiate";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* By handle. `size`: bytes of the store that it uses; `made`: in units, what it was expected to take. */
static struct allocations execs = ALLOCATIONS_INITIALIZER;

/* By context. `value`: bytes that it has for graphs; `size`: of these, what living ones use. */
static struct allocations stores = ALLOCATIONS_INITIALIZER;

static uint64_t handle(CUcontext context) {
    return (uint64_t)(uintptr_t)context;
}

static uint64_t less(uint64_t from, uint64_t size) {
    return from > size ? from - size : 0;
}

static struct promise promise_of(const struct graph_work *work) {
    return (struct promise){PROMISE_GRAPHS, work->in.device, work->in.context, (uint64_t)(uintptr_t)work};
}

/* Bytes that are to be charged. Without memory for the record they are charged again. */
static uint64_t claim(const struct graph_work *work) {
    struct allocation store = {0}, replaced;
    pthread_mutex_lock(&lock);
    if (!allocations_find(&stores, handle(work->in.context), &store)) store = (struct allocation){0};
    uint64_t more = less(store.size + work->size, store.value);
    more = (more + STEP - 1) / STEP * STEP;
    store.address = handle(work->in.context);
    store.value += more;
    store.size += work->size;
    (void)allocations_insert(&stores, store, &replaced);
    pthread_mutex_unlock(&lock);
    return more;
}

/* A context that has ended has no store any more. */
static void release(CUcontext context, uint64_t charged, uint64_t used) {
    struct allocation store, replaced;
    pthread_mutex_lock(&lock);
    if (allocations_find(&stores, handle(context), &store)) {
        store.value = less(store.value, charged);
        store.size = less(store.size, used);
        (void)allocations_insert(&stores, store, &replaced);
    }
    pthread_mutex_unlock(&lock);
}

static CUresult open_work(struct graph_work *work) {
    work->charged = 0;
    if (!work->in.seen) work->size = 0; /* nobody can tell what it takes */
    CUresult result = growth_charge_owed(work->in.device, call);
    if (result != CUDA_SUCCESS || work->size == 0) return result;
    struct promise promise = promise_of(work);
    uint64_t more = claim(work);
    if (more > 0) result = promise_make(&promise, call, more);
    if (result == CUDA_SUCCESS)
        work->charged = more;
    else
        release(work->in.context, more, work->size);
    return result;
}

CUresult graph_work_open(struct graph_work *work, const struct graph_contents *contents) {
    *work = (struct graph_work){.in = sample_take(), .expected = contents->work, .size = contents->work};
    return open_work(work);
}

void graph_work_close(struct graph_work *work) {
    if (work->size > 0) release(work->in.context, work->charged, work->size);
    promise_end((uint64_t)(uintptr_t)work);
    device_pop(work->pushed);
}

/* What of the promise is seen to be taken is growth from now on, though others may have taken or given memory
 * meanwhile: the measurement corrects it. What the driver took less than was charged is not there for the
 * next graph either. *used: what this one uses. */
static CUresult end_work(struct graph_work *work, uint64_t *used) {
    struct promise promise = promise_of(work);
    uint64_t fall = sample_fall(&work->in), most = work->charged < work->size ? work->charged : work->size;
    *used = work->size;
    if (work->charged == 0) return sample_charge_fall(&work->in, call);
    uint64_t taken = promises_take_back(&promise, fall), rise;
    growth_add_promised(work->in.device, taken);
    CUresult result = growth_settle(work->in.device, call, taken, &rise);
    promise_end((uint64_t)(uintptr_t)work);
    growth_suspect(work->in.device);
    uint64_t spare = less(most, rise < fall ? rise : fall);
    release(work->in.context, spare, spare);
    *used = work->size - spare;
    return result;
}

void graph_work_abandon(struct graph_work *work) {
    uint64_t used;
    (void)end_work(work, &used);
    release(work->in.context, 0, used);
}

static uint32_t units(uint64_t bytes) {
    uint64_t count = bytes / UNIT + 1; /* 0 would be the time */
    return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

/* Without memory for the record, its bytes are never given back. */
CUresult graph_work_enter(struct graph_work *work, CUgraphExec exec) {
    uint64_t used;
    CUresult result = end_work(work, &used);
    if (work->in.device < 0) return result;
    struct allocation replaced, entry = {.address = (uint64_t)(uintptr_t)exec,
                                         .size = used,
                                         .device = (uint64_t)work->in.device,
                                         .context = handle(work->in.context) >> 1,
                                         .made = units(work->expected)};
    (void)allocations_insert(&execs, entry, &replaced);
    return result;
}

static bool find(CUgraphExec exec, struct allocation *entry) {
    return allocations_find(&execs, (uint64_t)(uintptr_t)exec, entry) && !entry->dying;
}

/* Only larger parameters take more, with as much beside them until then. */
CUresult graph_work_open_change(struct graph_work *work, CUgraphExec exec,
                                const struct graph_contents *contents, bool child) {
    struct allocation entry;
    *work = (struct graph_work){.in.device = DEVICE_UNKNOWN};
    bool known = find(exec, &entry);
    if (known) work->pushed = device_push((CUcontext)(uintptr_t)(entry.context << 1));
    work->in = sample_take();
    uint64_t before = known ? (uint64_t)entry.made * UNIT : 0;
    if (known && child) work->size = 2 * contents->parameters;
    if (known && !child) work->size = 2 * less(contents->work, before);
    work->expected = child || contents->work < before ? before : contents->work;
    CUresult result = open_work(work);
    if (result != CUDA_SUCCESS) device_pop(work->pushed);
    return result;
}

CUresult graph_work_enter_change(struct graph_work *work, CUgraphExec exec) {
    struct allocation entry, replaced;
    uint64_t used;
    CUresult result = end_work(work, &used);
    if (find(exec, &entry)) {
        entry.size += used;
        entry.made = units(work->expected);
        (void)allocations_insert(&execs, entry, &replaced);
    }
    device_pop(work->pushed);
    return result;
}

int graph_work_device(CUgraphExec exec) {
    struct allocation entry;
    return find(exec, &entry) ? (int)entry.device : DEVICE_UNKNOWN;
}

bool graph_work_leave(CUgraphExec exec, struct allocation *entry) {
    if (!allocations_remove(&execs, (uint64_t)(uintptr_t)exec, entry)) return false;
    release((CUcontext)(uintptr_t)(entry->context << 1), 0, entry->size);
    return true;
}

void graph_work_stay(const struct allocation *entry) {
    struct allocation store, replaced;
    pthread_mutex_lock(&lock);
    if (allocations_find(&stores, (uint64_t)entry->context << 1, &store)) {
        store.size += entry->size;
        (void)allocations_insert(&stores, store, &replaced);
    }
    pthread_mutex_unlock(&lock);
    (void)allocations_insert(&execs, *entry, &replaced);
}

static void graph_work_mark(CUcontext context) {
    allocations_mark(&execs, handle(context));
}

static void graph_work_unmark(CUcontext context) {
    allocations_unmark(&execs, handle(context));
}

static void graph_work_drop(CUcontext context, uint64_t *sizes) {
    struct allocation removed;
    (void)sizes; /* they are growth, and go with the contexts' */
    pthread_mutex_lock(&lock);
    (void)allocations_remove(&stores, handle(context), &removed);
    allocations_drop(&execs, handle(context), NULL, NULL);
    pthread_mutex_unlock(&lock);
}

static void graph_work_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    allocations_reset(&execs);
    allocations_reset(&stores);
}
REGISTER_FAMILY(graph_work, .reset = graph_work_reset, .mark = graph_work_mark, .unmark = graph_work_unmark,
                .drop = graph_work_drop);
