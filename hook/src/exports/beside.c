/* SPDX-License-Identifier: Apache-2.0 */
#include "exports/beside.h"

#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "exports/descriptors.h"
#include "exports/kept.h"
#include "tables/registry.h"

#include <pthread.h>

enum { PIECE = 32 << 20, ORDINAL = 9 /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */ };

static void end(const struct allocation *entry);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards both tables */
/* By the name of the descriptors; `value` is the address of the piece. */
static struct kept kept = {.entries = ALLOCATIONS_INITIALIZER, .open = ALLOCATIONS_INITIALIZER, .end = end};
static struct allocations names =
    ALLOCATIONS_INITIALIZER; /* by the address of a piece; `value` is its name */

/* For kept_reclaim(): nobody has a dma-buf of the piece any more. */
static void end(const struct allocation *entry) {
    struct allocation piece;
    (void)allocations_remove(&names, entry->value, &piece);
    growth_show((int)entry->device, PIECE);
    headroom_give((int)entry->device, PIECE);
    growth_suspect((int)entry->device);
}

static uint64_t count_new(const struct beside *beside) {
    struct allocation piece;
    uint64_t count = 0;
    pthread_mutex_lock(&lock);
    for (uint64_t at = beside->begin; at < beside->end; at += PIECE)
        if (!allocations_find(&names, at, &piece)) count++;
    pthread_mutex_unlock(&lock);
    return count;
}

CUresult beside_open(struct beside *beside, CUdeviceptr address) {
    struct charge *charge = &beside->charge;
    CUdeviceptr base;
    size_t size;
    int ordinal;
    if (DRIVER(cuMemGetAddressRange_v2, &base, &size, address) != CUDA_SUCCESS) return CUDA_SUCCESS;
    if (DRIVER(cuPointerGetAttribute, &ordinal, ORDINAL, address) != CUDA_SUCCESS) return CUDA_SUCCESS;
    charge->device = device_of_ordinal(ordinal);
    if (size == 0 || charge->device < 0) return CUDA_SUCCESS;
    beside->begin = base / PIECE * PIECE;
    beside->end = (base + size + PIECE - 1) / PIECE * PIECE;
    uint64_t count = count_new(beside);
    return count == 0 ? CUDA_SUCCESS : charge_open(charge, count * PIECE);
}

/* A piece counts from now on; `lock` is held. */
static bool enter(struct beside *beside, uint64_t at, uint64_t name) {
    struct allocation replaced;
    struct allocation piece = {.address = at, .value = name};
    struct allocation entry = {
        .address = name, .size = PIECE, .device = (uint64_t)beside->charge.device & 63, .value = at};
    if (beside->charge.size < PIECE || !allocations_insert(&names, piece, &replaced)) return false;
    if (!kept_enter(&kept, entry)) {
        (void)allocations_remove(&names, at, &piece);
        return false;
    }
    growth_hide(beside->charge.device, PIECE);
    beside->charge.size -= PIECE;
    return true;
}

static bool keep_one(struct beside *beside, uint64_t at, int descriptor) {
    struct allocation piece = {.value = 0};
    if (allocations_find(&names, at, &piece)) return descriptors_watch(piece.value, descriptor);
    uint64_t name = descriptors_new_name();
    return descriptors_watch(name, descriptor) && enter(beside, at, name);
}

bool beside_keep(struct beside *beside, int descriptor) {
    bool all = true;
    pthread_mutex_lock(&lock);
    for (uint64_t at = beside->begin; all && at < beside->end; at += PIECE)
        all = keep_one(beside, at, descriptor);
    pthread_mutex_unlock(&lock);
    return all;
}

void beside_close(struct beside *beside) {
    if (beside->charge.size > 0) charge_close(&beside->charge);
}

static void beside_look(void) {
    if (kept.count == 0) return;
    pthread_mutex_lock(&lock);
    kept_reclaim(&kept);
    pthread_mutex_unlock(&lock);
}

static void beside_reclaim(int device, bool trim) {
    (void)device;
    (void)trim;
    beside_look();
}

/* For allocations_visit(). */
static void beside_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    visitor->visit(&(struct live_allocation){.kind = "memory that others keep",
                                             .device = (int)entry->device,
                                             .address = entry->value,
                                             .size = entry->size,
                                             .call = "cuMemGetHandleForAddressRange",
                                             .made = entry->made},
                   visitor->argument);
}

static void beside_enumerate(registry_visit *visit, void *argument) {
    pthread_mutex_lock(&lock);
    allocations_visit(&kept.entries, beside_show, &(struct registry_visitor){visit, argument});
    pthread_mutex_unlock(&lock);
}

static void beside_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    kept_reset(&kept);
    allocations_reset(&names);
}
REGISTER_FAMILY(beside, .reset = beside_reset, .reclaim = beside_reclaim, .unkeep = beside_look,
                .enumerate = beside_enumerate);
