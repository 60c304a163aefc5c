/* SPDX-License-Identifier: Apache-2.0 */
#include "code/functions.h"

#include "accounting/allocations.h"
#include "accounting/context_growth.h"
#include "tables/registry.h"

_Alignas(64) _Atomic word functions_seen[1 << FUNCTIONS_BITS];
static _Atomic uint32_t generation;
static struct allocations known = ALLOCATIONS_INITIALIZER;   /* by name(); all are marked, to be dropped */
static struct allocations kernels = ALLOCATIONS_INITIALIZER; /* by handle; `context` is the library */

/* One number for both: two pairs share one only by an accident of 1 in 2^64. */
static word name(word function, CUcontext context) {
    word mixed = function ^ (word)(uintptr_t)context * UINT64_C(0xd6e8feb86659fd93);
    return mixed != 0 ? mixed : 1;
}

/* As launches ask for it. A kernel of several contexts has no such name. */
static word short_name(word function, CUcontext context) {
    return growth_contexts() > 1 && functions_library(function) != 0 ? name(function, context) : function;
}

uint32_t functions_generation(void) {
    return atomic_load(&generation);
}

/* Stored first, then looked whether all was forgotten meanwhile: who forgets does it the other way round. */
static void show(word function, CUcontext context, uint32_t since) {
    word shown = short_name(function, context);
    unsigned first = functions_slot(shown);
    _Atomic word *slot = &functions_seen[atomic_load(&functions_seen[first]) == 0 ? first : first ^ 1];
    atomic_store(slot, shown);
    if (atomic_load(&generation) != since) atomic_store(slot, 0);
}

bool functions_know(word function, CUcontext context) {
    struct allocation entry;
    uint32_t since = functions_generation();
    if (growth_contexts() > 1 && functions_are_seen(name(function, context))) return true;
    if (!allocations_find(&known, name(function, context), &entry)) return false;
    show(function, context, since);
    return true;
}

void functions_learn(word function, CUcontext context, uint32_t since) {
    struct allocation replaced, entry = {.address = name(function, context), .dying = 1};
    if (functions_generation() != since || !allocations_insert(&known, entry, &replaced)) return;
    show(function, context, since);
    if (functions_generation() != since) (void)allocations_remove(&known, entry.address, &replaced);
}

static void none(const struct allocation *entry, void *argument) {
    (void)entry, (void)argument;
}

void functions_forget(void) {
    atomic_fetch_add(&generation, 1);
    allocations_drop(&known, ALLOCATIONS_ANY, none, NULL);
    for (unsigned slot = 0; slot < 1 << FUNCTIONS_BITS; slot++)
        if (atomic_load_explicit(&functions_seen[slot], memory_order_relaxed) != 0)
            atomic_store(&functions_seen[slot], 0);
}

void functions_add_kernel(word kernel, uint64_t library) {
    struct allocation replaced, entry = {.address = kernel, .context = library >> 1};
    if (kernel != 0) (void)allocations_insert(&kernels, entry, &replaced);
}

uint64_t functions_library(word kernel) {
    struct allocation entry;
    return kernel != 0 && allocations_find(&kernels, kernel, &entry) ? (uint64_t)entry.context << 1 : 0;
}

void functions_mark_library(uint64_t library) {
    allocations_mark(&kernels, library);
}

void functions_drop_library(uint64_t library, bool gone) {
    if (gone)
        allocations_drop(&kernels, library, none, NULL);
    else
        allocations_unmark(&kernels, library);
}

static void functions_drop(CUcontext context, uint64_t *sizes) {
    (void)context, (void)sizes;
    functions_forget();
}

static void functions_reset(void) {
    allocations_reset(&known);
    allocations_reset(&kernels);
    functions_forget();
}
REGISTER_FAMILY(functions, .drop = functions_drop, .reset = functions_reset);
