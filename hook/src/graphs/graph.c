/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that graphs allocate when they are launched. A graph's allocation nodes take memory when the graph
 * is uploaded or launched, and launches are not hooked. So a device is charged, from the instantiation on,
 * with the larger of two figures: what all live executable graphs could take together, with what ended ones
 * may have left, and what the driver has reserved for graphs (which outlives them, until
 * cuDeviceGraphMemTrim). The first is a bound: graphs that are launched one after another share memory.
 *
 * What no node of a graph frees stays allocated after it, and no other graph can take that. The driver counts
 * it as reserved, together with what others can take: that is trimmed before anybody is refused.
 *
 * `lock` guards the devices' figures; never held while paused.
 */
#include "accounting/allocations.h"
#include "accounting/charge.h"
#include "accounting/device.h"
#include "code/sample.h"
#include "graphs/contents.h"
#include "graphs/work.h"
#include "scheduler/account.h"
#include "tables/registry.h"

#include <pthread.h>
#include <string.h>

enum { RESERVED = 2 };

struct device_graphs {
    CUdevice ordinal;
    uint64_t bound;   /* bytes that live executable graphs could take */
    uint64_t left;    /* bytes that ended ones may have left allocated: no more than are reserved */
    uint64_t charged; /* at least `bound` */
    uint64_t asked;   /* of `charged`: not had yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_graphs devices[CONVGPU_MAX_DEVICES]; /* guarded by `lock` */
static struct allocations execs = ALLOCATIONS_INITIALIZER;

/* One instantiation; `attempt` calls the driver and writes `exec`. */
struct instantiation {
    charge_attempt *attempt;
    CUgraphExec exec;
    CUgraph graph;
    bool made; /* by the driver, whatever became of it */
    struct graph_contents contents;
    void *error_node, *text; /* the program's own variables */
    size_t text_size;
    unsigned long long flags;
};

/* The key of an executable graph on a device: addresses have less than 58 bits. */
static uint64_t key(CUgraphExec exec, int device) {
    _Static_assert(CONVGPU_MAX_DEVICES <= 64, "fits into the shift");
    return (uint64_t)(uintptr_t)exec << 6 | (uint64_t)device;
}

static uint64_t read_reserved(const struct device_graphs *graphs) {
    uint64_t reserved = 0;
    CUresult result = DRIVER(cuDeviceGetGraphMemAttribute, graphs->ordinal, RESERVED, &reserved);
    return result == CUDA_SUCCESS ? reserved : graphs->charged;
}

/* Gives back what is charged beyond both figures; takes what launches reserved beyond the bound, if it can be
 * had at once. `lock` is held. */
static void graph_settle(int device) {
    struct device_graphs *graphs = &devices[device];
    if (graphs->charged == 0) return;
    uint64_t reserved = read_reserved(graphs), had = graphs->charged - graphs->asked;
    if (graphs->left > reserved) graphs->left = reserved;
    uint64_t bound = graphs->bound + graphs->left, target = reserved > bound ? reserved : bound;
    if (target > graphs->charged) {
        if (headroom_take_fixed(device, target - graphs->charged)) graphs->charged = target;
        return;
    }
    uint64_t surplus = graphs->charged - target;
    if (surplus > had) surplus = had; /* what was asked for may never be had */
    headroom_give(device, surplus);
    graphs->charged -= surplus;
}

/* A bound is charged before a launch takes it. */
static uint64_t graph_untaken(int device) {
    struct device_graphs *graphs = &devices[device];
    pthread_mutex_lock(&lock);
    uint64_t had = graphs->charged - graphs->asked;
    uint64_t reserved = had > 0 ? read_reserved(graphs) : 0;
    pthread_mutex_unlock(&lock);
    return had > reserved ? had - reserved : 0;
}

/* Gives back what the driver has given up of what it keeps for graphs. */
static void graph_reclaim(int device, bool trim) {
    pthread_mutex_lock(&lock);
    struct device_graphs *graphs = &devices[device];
    if (trim && graphs->charged > graphs->bound) DRIVER(cuDeviceGraphMemTrim, graphs->ordinal);
    graph_settle(device);
    pthread_mutex_unlock(&lock);
}

/* Takes the bounds back that were charged for this instantiation. */
static void graph_uncharge(const struct instantiation *request) {
    pthread_mutex_lock(&lock);
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++) {
        if (request->contents.bound[device] == 0) continue;
        devices[device].bound -= request->contents.bound[device];
        graph_settle(device);
    }
    pthread_mutex_unlock(&lock);
}

/* What was asked for is had, or is not charged either. */
static void graph_answered(struct device_graphs *graphs, uint64_t asked, bool had) {
    pthread_mutex_lock(&lock);
    graphs->asked -= asked;
    if (!had) graphs->charged -= asked;
    pthread_mutex_unlock(&lock);
}

/* Charges the bounds, pausing where that must be. *watched: the charge of the device on which most settles.
 */
static CUresult graph_charge(struct instantiation *request, struct charge *watched) {
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++) {
        struct device_graphs *graphs = &devices[device];
        struct charge charge = {.call = "cuGraphInstantiate", .device = device};
        if (request->contents.bound[device] == 0) continue;
        pthread_mutex_lock(&lock);
        if (graphs->left > 0) graph_settle(device);
        graphs->bound += request->contents.bound[device];
        uint64_t bound = graphs->bound + graphs->left;
        uint64_t needed = bound > graphs->charged ? bound - graphs->charged : 0;
        graphs->charged += needed;
        graphs->asked += needed;
        pthread_mutex_unlock(&lock);
        CUresult result = charge_open(&charge, needed);
        graph_answered(graphs, needed, result == CUDA_SUCCESS);
        if (result == CUDA_SUCCESS) {
            if (watched->device < 0 || charge.settling > watched->settling) *watched = charge;
            continue;
        }
        for (int later = device + 1; later < (int)CONVGPU_MAX_DEVICES; later++)
            request->contents.bound[later] = 0;
        graph_uncharge(request);
        return result;
    }
    return CUDA_SUCCESS;
}

static void graph_enter(const struct instantiation *request, CUcontext context) {
    struct allocation replaced;
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++) {
        if (request->contents.bound[device] == 0) continue;
        struct allocation entry = {.address = key(request->exec, device),
                                   .size = request->contents.bound[device],
                                   .form = request->contents.keeps[device],
                                   .device = (uint64_t)device,
                                   .context = (uint64_t)(uintptr_t)context >> 1};
        (void)allocations_insert(&execs, entry, &replaced); /* without memory for it, it stays charged */
    }
}

/* Reads the graph, and notes the ordinals of the devices on which it allocates. */
static CUresult graph_measure(struct instantiation *request) {
    CUresult result = graph_read(request->graph, &request->contents);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&lock);
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++)
        if (request->contents.bound[device] > 0) devices[device].ordinal = request->contents.ordinal[device];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Whether another thread has let the graph grow since it was read: then nobody knows what it takes. */
static bool graph_has_grown(const struct instantiation *request, bool works) {
    struct graph_contents now;
    const struct graph_contents *before = &request->contents;
    CUresult result = works ? graph_read(request->graph, &now) : graph_read_bounds(request->graph, &now);
    bool larger = result != CUDA_SUCCESS || now.work > before->work;
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++)
        larger |= now.bound[device] > before->bound[device] || (now.keeps[device] && !before->keeps[device]);
    return larger;
}

/* What has grown is refused: before, as the driver does not give the work back, and after, as it could be
 * launched. */
static CUresult graph_call(struct instantiation *request, const struct charge *watched, bool asked) {
    if (asked && graph_has_grown(request, true)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = watched->device >= 0 ? charge_call_when_settled(watched, request->attempt, request)
                                           : request->attempt(request);
    request->made = result == CUDA_SUCCESS;
    if (!request->made || !graph_has_grown(request, false)) return result;
    DRIVER(cuGraphExecDestroy, request->exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* What its nodes allocate is charged, and is given back if it is not made. `asked`: that may have taken long
 * already. */
static CUresult graph_make(struct instantiation *request, bool asked) {
    struct charge watched = {.device = DEVICE_UNKNOWN};
    CUcontext context = NULL;
    int here = DEVICE_UNKNOWN;
    bool allocates = request->contents.allocations > 0;
    CUresult result = allocates ? graph_charge(request, &watched) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) return result;
    watched.current = device_current(&context, &here) == CUDA_SUCCESS && here == watched.device;
    result = graph_call(request, &watched, asked || allocates);
    if (result == CUDA_SUCCESS)
        graph_enter(request, context);
    else
        graph_uncharge(request);
    return result;
}

static CUresult graph_instantiate(CUgraphExec *exec, struct instantiation *request) {
    struct graph_work work;
    CUresult result = graph_measure(request);
    if (result == CUDA_SUCCESS) result = graph_work_open(&work, &request->contents);
    if (result != CUDA_SUCCESS) return result;
    result = graph_make(request, work.charged > 0);
    if (result != CUDA_SUCCESS && request->made) graph_work_abandon(&work);
    if (result != CUDA_SUCCESS && !request->made) graph_work_close(&work);
    if (result != CUDA_SUCCESS) return result;
    result = graph_work_enter(&work, request->exec); /* with the code of its kernels */
    if (result == CUDA_SUCCESS)
        *exec = request->exec;
    else
        (void)hooked_cuGraphExecDestroy(request->exec);
    return result;
}

static CUresult graph_attempt_v1(void *arguments) {
    struct instantiation *request = arguments;
    return DRIVER(cuGraphInstantiate, &request->exec, request->graph, request->error_node, request->text,
                  request->text_size);
}

CUresult hooked_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, void *error_node, char *text,
                                   size_t size) {
    struct instantiation request = {.attempt = graph_attempt_v1,
                                    .graph = graph,
                                    .error_node = error_node,
                                    .text = text,
                                    .text_size = size};
    return graph_instantiate(exec, &request);
}

static CUresult graph_attempt_v2(void *arguments) {
    struct instantiation *request = arguments;
    return DRIVER(cuGraphInstantiate_v2, &request->exec, request->graph, request->error_node, request->text,
                  request->text_size);
}

CUresult hooked_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, void *error_node, char *text,
                                      size_t size) {
    struct instantiation request = {.attempt = graph_attempt_v2,
                                    .graph = graph,
                                    .error_node = error_node,
                                    .text = text,
                                    .text_size = size};
    return graph_instantiate(exec, &request);
}

static CUresult graph_attempt_flags(void *arguments) {
    struct instantiation *request = arguments;
    return DRIVER(cuGraphInstantiateWithFlags, &request->exec, request->graph, request->flags);
}

CUresult hooked_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    struct instantiation request = {.attempt = graph_attempt_flags, .graph = graph, .flags = flags};
    return graph_instantiate(exec, &request);
}

static CUresult graph_attempt_parameters(void *arguments) {
    struct instantiation *request = arguments;
    return DRIVER(cuGraphInstantiateWithParams, &request->exec, request->graph, request->text);
}

CUresult hooked_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, void *parameters) {
    struct instantiation request = {.attempt = graph_attempt_parameters, .graph = graph, .text = parameters};
    return graph_instantiate(exec, &request);
}

static CUresult graph_attempt_parameters_ptsz(void *arguments) {
    struct instantiation *request = arguments;
    return DRIVER(cuGraphInstantiateWithParams_ptsz, &request->exec, request->graph, request->text);
}

CUresult hooked_cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, void *parameters) {
    struct instantiation request = {
        .attempt = graph_attempt_parameters_ptsz, .graph = graph, .text = parameters};
    return graph_instantiate(exec, &request);
}

/* The entries go first: the driver may give the handle to another thread before its call returns. */
CUresult hooked_cuGraphExecDestroy(CUgraphExec exec) {
    struct allocation entries[CONVGPU_MAX_DEVICES], replaced;
    int count = 0;
    for (int device = 0; device < (int)account_devices(); device++)
        if (allocations_remove(&execs, key(exec, device), &entries[count])) count++;
    struct allocation work;
    bool works = graph_work_leave(exec, &work);
    struct sample before = sample_take();
    CUresult result = DRIVER(cuGraphExecDestroy, exec);
    if (result == CUDA_SUCCESS) sample_see_rise(&before);
    if (result != CUDA_SUCCESS && works) graph_work_stay(&work);
    pthread_mutex_lock(&lock);
    for (int index = 0; index < count; index++) {
        int device = (int)entries[index].device;
        if (result != CUDA_SUCCESS) {
            (void)allocations_insert(&execs, entries[index], &replaced);
            continue;
        }
        devices[device].bound -= entries[index].size;
        if (entries[index].form) devices[device].left += entries[index].size;
        graph_settle(device);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult hooked_cuDeviceGraphMemTrim(CUdevice ordinal) {
    CUresult result = DRIVER(cuDeviceGraphMemTrim, ordinal);
    int device = device_of_ordinal(ordinal);
    if (result == CUDA_SUCCESS && device >= 0) graph_reclaim(device, false);
    return result;
}

static void graph_mark(CUcontext context) {
    allocations_mark(&execs, (uint64_t)(uintptr_t)context);
}

static void graph_unmark(CUcontext context) {
    allocations_unmark(&execs, (uint64_t)(uintptr_t)context);
}

/* Gives back by itself: a bound that ends is not always a charge that ends. */
static void graph_drop(CUcontext context, uint64_t *given) {
    uint64_t sizes[CONVGPU_MAX_DEVICES] = {0};
    (void)given;
    allocations_drop(&execs, (uint64_t)(uintptr_t)context, allocations_add_size, sizes);
    pthread_mutex_lock(&lock);
    for (int device = 0; device < (int)account_devices(); device++) {
        devices[device].bound -= sizes[device];
        graph_settle(device);
    }
    pthread_mutex_unlock(&lock);
}

/* For allocations_visit(); the handle without its device (key). */
static void graph_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    visitor->visit(&(struct live_allocation){"graph", (int)entry->device, entry->address >> 6, entry->size,
                                             "cuGraphInstantiate", entry->made},
                   visitor->argument);
}

static void graph_enumerate(registry_visit *visit, void *argument) {
    allocations_visit(&execs, graph_show, &(struct registry_visitor){visit, argument});
}

static void graph_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(devices, 0, sizeof devices);
    allocations_reset(&execs);
}
REGISTER_FAMILY(graph, .reset = graph_reset, .reclaim = graph_reclaim, .untaken = graph_untaken,
                .mark = graph_mark, .unmark = graph_unmark, .drop = graph_drop, .enumerate = graph_enumerate);
