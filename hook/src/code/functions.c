/* SPDX-License-Identifier: Apache-2.0 */
#include "code/functions.h"

#include "accounting/allocations.h"
#include "accounting/context_growth.h"
#include "gate/gate.h"
#include "tables/registry.h"

_Alignas(64) _Atomic word functions_seen[1 << FUNCTIONS_BITS];
/* Around all that follows, but for what launches read. */
static struct spinlock lock;

static _Atomic uint32_t generation;
static struct allocations known = ALLOCATIONS_INITIALIZER; /* by name(); all are marked, to be dropped */

/* Handles that the program has got: `form` is a functions_kind, `made` the number of times that all had been
 * forgotten when its first launch was looked at, or NEVER. And modules that are a library's. `context` is the
 * owner, as in `known`. */
#define NEVER UINT32_MAX
static uint32_t times_forgotten = 1;
static struct allocations handles = ALLOCATIONS_INITIALIZER;
static struct allocations modules = ALLOCATIONS_INITIALIZER;

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

/* A handle that was got in a way that is not hooked could come again unseen: then nothing passes at once.
 * A kernel has other forms in other contexts, which were not looked at. */
static void let_pass(struct allocation *handle) {
    struct allocation replaced;
    if (handle->address == 0) {
        short_path_shut();
    } else if (handle->made != times_forgotten &&
               (handle->form != FUNCTIONS_KERNEL || growth_contexts() <= 1)) {
        handle->made = times_forgotten;
        if (allocations_insert(&handles, *handle, &replaced)) short_path_release(handle->address);
    }
    if (gate_is_unused()) short_path_open();
}

void functions_learn(word function, CUcontext context, uint32_t since) {
    struct allocation replaced, handle = {.address = 0};
    spinlock_lock(&lock);
    (void)allocations_find(&handles, function, &handle);
    struct allocation entry = {.address = name(function, context), .context = handle.context, .dying = 1};
    if (functions_generation() == since && allocations_insert(&known, entry, &replaced)) {
        show(function, context, since);
        let_pass(&handle);
    }
    spinlock_unlock(&lock);
}

static void unshow(word shown) {
    unsigned first = functions_slot(shown);
    if (functions_stand_at(first, shown)) atomic_store(&functions_seen[first], 0);
    if (functions_stand_at(first ^ 1, shown)) atomic_store(&functions_seen[first ^ 1], 0);
}

static void forget_name(const struct allocation *entry, void *argument) {
    (void)argument;
    unshow(entry->address);
}

static void wait_again(const struct allocation *entry, void *argument) {
    (void)argument;
    short_path_count(entry->address);
}

static void forget_all(void) {
    atomic_fetch_add(&generation, 1);
    times_forgotten++;
    short_path_begin_recount();
    allocations_visit(&handles, wait_again, NULL);
    short_path_end_recount();
    allocations_drop(&known, ALLOCATIONS_ANY, forget_name, NULL);
    for (unsigned slot = 0; slot < 1 << FUNCTIONS_BITS; slot++)
        if (atomic_load_explicit(&functions_seen[slot], memory_order_relaxed) != 0)
            atomic_store(&functions_seen[slot], 0);
}

void functions_forget(void) {
    spinlock_lock(&lock);
    forget_all();
    spinlock_unlock(&lock);
}

/* A handle that comes again, of another owner, has died in a way that was not seen. */
static void enter(struct allocation handle) {
    struct allocation there, replaced;
    bool again = allocations_find(&handles, handle.address, &there);
    if (again && !there.dying && there.context == handle.context && there.form == handle.form) return;
    if (again) forget_all(); /* it waits then */
    if (!allocations_insert(&handles, handle, &replaced))
        short_path_shut();
    else if (!again)
        short_path_close(handle.address);
}

void functions_add(enum functions_kind kind, word made, uint64_t owner) {
    struct allocation module, handle = {.address = made, .context = owner >> 1, .form = kind, .made = NEVER};
    if (made == 0) return;
    spinlock_lock(&lock);
    if (allocations_find(&modules, owner, &module)) handle.context = module.context;
    enter(handle);
    spinlock_unlock(&lock);
}

void functions_add_module(uint64_t module, uint64_t library) {
    struct allocation replaced, entry = {.address = module, .context = library >> 1};
    spinlock_lock(&lock);
    if (module != 0 && !allocations_insert(&modules, entry, &replaced)) short_path_shut();
    spinlock_unlock(&lock);
}

uint64_t functions_library(word kernel) {
    struct allocation entry;
    bool found = kernel != 0 && allocations_find(&handles, kernel, &entry) && entry.form == FUNCTIONS_KERNEL;
    return found ? (uint64_t)entry.context << 1 : 0;
}

void functions_mark_owner(uint64_t owner) {
    allocations_mark(&handles, owner);
    allocations_mark(&modules, owner);
}

static void none(const struct allocation *entry, void *argument) {
    (void)entry, (void)argument;
}

static void leave(const struct allocation *handle, void *argument) {
    (void)argument;
    unshow(handle->address);
    if (handle->made != times_forgotten) short_path_release(handle->address);
}

static void drop_owner(uint64_t owner) {
    atomic_fetch_add(&generation, 1);
    allocations_drop(&handles, owner, leave, NULL);
    allocations_drop(&modules, owner, none, NULL);
    allocations_drop(&known, owner, forget_name, NULL);
    if (short_path_is_shut()) forget_all(); /* not all that goes is recorded */
}

void functions_end_owner(uint64_t owner, bool gone) {
    spinlock_lock(&lock);
    if (gone) {
        drop_owner(owner);
    } else {
        allocations_unmark(&handles, owner);
        allocations_unmark(&modules, owner);
    }
    spinlock_unlock(&lock);
}

static void functions_drop(CUcontext context, uint64_t *sizes) {
    (void)context, (void)sizes;
    functions_forget();
}

static void functions_reset(void) {
    allocations_reset(&known);
    allocations_reset(&handles);
    allocations_reset(&modules);
    lock = (struct spinlock){0};
    forget_all();
    short_path_reset();
}
REGISTER_FAMILY(functions, .drop = functions_drop, .reset = functions_reset);
