/* SPDX-License-Identifier: Apache-2.0
 *
 * The default streams are one here: a synchronisation with any stream is taken for one with them. That can be
 * too early; what the driver still holds is then seen as growth (context_growth.h).
 */
#include "accounting/deferred_free.h"

#include <stdatomic.h>

static struct allocations deferred = ALLOCATIONS_INITIALIZER; /* in place of the context stands the stream */
static _Atomic bool any;

static uint64_t name_of(CUstream stream) {
    return (uintptr_t)stream <= CU_STREAM_PER_THREAD ? 0 : (uint64_t)(uintptr_t)stream;
}

bool deferred_free_enter(struct allocation entry, CUstream stream, struct allocation *replaced) {
    entry.context = name_of(stream) >> 1;
    entry.dying = 1;
    any = true;
    return allocations_insert(&deferred, entry, replaced);
}

bool deferred_free_is_used(void) {
    return atomic_load_explicit(&any, memory_order_relaxed);
}

void deferred_free_end(CUstream stream, allocations_each *each, void *argument) {
    allocations_drop(&deferred, 0, each, argument);
    if (name_of(stream) != 0) allocations_drop(&deferred, name_of(stream), each, argument);
}

void deferred_free_end_all(allocations_each *each, void *argument) {
    allocations_drop(&deferred, ALLOCATIONS_ANY, each, argument);
}

void deferred_free_visit(allocations_each *each, void *argument) {
    allocations_visit(&deferred, each, argument);
}

void deferred_free_reset(void) {
    allocations_reset(&deferred);
    any = false;
}
