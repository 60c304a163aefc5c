/* SPDX-License-Identifier: Apache-2.0 */
#include "functions/functions.h"

#include "accounting/allocations.h"
#include "accounting/context_growth.h"
#include "functions/parameters.h"
#include "gate/gate.h"
#include "tables/registry.h"

_Alignas(64) _Atomic word functions_seen[1 << FUNCTIONS_BITS];

/* Around what changes; launches read without it. It is held for as long as a walk through all handles takes.
 */
static struct spinlock lock;

static _Atomic uint32_t generation;
static struct allocations known = ALLOCATIONS_INITIALIZER; /* by name(); all are marked, to be dropped */

/* Handles that the program has got. `context` is the owner, as in `known`; `made` the number of times that
 * all had been forgotten when its first launch was looked at, or NEVER. */
#define NEVER UINT32_MAX
static uint32_t times_forgotten = 1;
static struct allocations handles[] = {
    [FUNCTIONS_FUNCTION] = ALLOCATIONS_INITIALIZER,
    [FUNCTIONS_KERNEL] = ALLOCATIONS_INITIALIZER,
};
static bool mixed;      /* handles may go with something else than their owner */
static unsigned ending; /* contexts: what their modules had may come again before they are seen to be gone */

/* One number for both: two pairs share one only by an accident of 1 in 2^64. */
static word name(word function, CUcontext context) {
    word both = function ^ (word)(uintptr_t)context * UINT64_C(0xd6e8feb86659fd93);
    return both != 0 ? both : 1;
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
    spinlock_lock(&lock);
    bool found = functions_generation() == since && allocations_find(&known, name(function, context), &entry);
    if (found) show(function, context, since);
    spinlock_unlock(&lock);
    return found;
}

static bool find_handle(word made, enum functions_kind *kind, struct allocation *found) {
    for (*kind = FUNCTIONS_FUNCTION; *kind <= FUNCTIONS_KERNEL; ++*kind)
        if (allocations_find(&handles[*kind], made, found)) return true;
    return false;
}

/* A handle that was got in a way that is not hooked could come again unseen: then nothing passes at once.
 * A kernel has other forms in other contexts, which were not looked at. */
static void let_pass(bool got, enum functions_kind kind, struct allocation *handle) {
    struct allocation replaced;
    if (!got) {
        short_path_shut();
    } else if (handle->made != times_forgotten && (kind != FUNCTIONS_KERNEL || growth_contexts() <= 1)) {
        handle->made = times_forgotten;
        if (allocations_insert(&handles[kind], *handle, &replaced)) short_path_release(handle->address);
    }
    if (gate_is_unused()) short_path_open();
}

void functions_learn(word function, CUcontext context, uint32_t since) {
    struct allocation replaced, handle = {.address = 0};
    enum functions_kind kind;
    spinlock_lock(&lock);
    bool got = find_handle(function, &kind, &handle);
    struct allocation entry = {.address = name(function, context), .context = handle.context, .dying = 1};
    if (functions_generation() == since && allocations_insert(&known, entry, &replaced)) {
        show(function, context, since);
        let_pass(got, kind, &handle);
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

static void forget_all(void) {
    atomic_fetch_add(&generation, 1);
    times_forgotten++;
    short_path_close_all();
    allocations_drop(&known, ALLOCATIONS_ANY, NULL, NULL);
    for (unsigned slot = 0; slot < 1 << FUNCTIONS_BITS; slot++)
        if (atomic_load_explicit(&functions_seen[slot], memory_order_relaxed) != 0)
            atomic_store(&functions_seen[slot], 0);
}

void functions_forget(void) {
    spinlock_lock(&lock);
    forget_all();
    spinlock_unlock(&lock);
}

static void leave(const struct allocation *handle, void *argument) {
    (void)argument;
    unshow(handle->address);
    short_path_remove(handle->address, handle->made != times_forgotten);
}

/* The driver may give a handle again before the call that ended the last one returns. One that comes again,
 * of another owner, has died in a way that was not seen. A kernel may stand for its function as well. */
static void enter(enum functions_kind kind, struct allocation handle) {
    struct allocation there, replaced;
    enum functions_kind before;
    bool again = find_handle(handle.address, &before, &there);
    bool is_alike = again && !there.dying && ending == 0 && (before == kind || before == FUNCTIONS_KERNEL);
    if (is_alike && there.context == handle.context) return;
    if (again) {
        forget_all();
        (void)allocations_remove(&handles[before], handle.address, &there);
        leave(&there, NULL);
    }
    if (allocations_insert(&handles[kind], handle, &replaced))
        short_path_add(handle.address);
    else
        short_path_shut();
}

void functions_add(enum functions_kind kind, word made, uint64_t owner) {
    if (made == 0) return;
    parameters_forget(made);
    spinlock_lock(&lock);
    mixed |= owner == 0;
    enter(kind, (struct allocation){.address = made, .context = owner >> 1, .made = NEVER});
    spinlock_unlock(&lock);
}

void functions_mix(void) {
    spinlock_lock(&lock);
    mixed = true;
    spinlock_unlock(&lock);
}

uint64_t functions_library(word kernel) {
    struct allocation entry;
    bool found = kernel != 0 && allocations_find(&handles[FUNCTIONS_KERNEL], kernel, &entry);
    return found ? (uint64_t)entry.context << 1 : 0;
}

void functions_mark_owner(uint64_t owner) {
    spinlock_lock(&lock);
    for (int kind = FUNCTIONS_FUNCTION; kind <= FUNCTIONS_KERNEL; kind++)
        allocations_mark(&handles[kind], owner);
    spinlock_unlock(&lock);
}

static void drop_owner(uint64_t owner) {
    atomic_fetch_add(&generation, 1);
    for (int kind = FUNCTIONS_FUNCTION; kind <= FUNCTIONS_KERNEL; kind++)
        allocations_drop(&handles[kind], owner, leave, NULL);
    allocations_drop(&known, owner, forget_name, NULL);
    if (mixed || short_path_is_shut()) forget_all(); /* not all that goes is recorded as its own */
}

void functions_end_owner(uint64_t owner, bool gone) {
    spinlock_lock(&lock);
    if (gone)
        drop_owner(owner);
    else
        for (int kind = FUNCTIONS_FUNCTION; kind <= FUNCTIONS_KERNEL; kind++)
            allocations_unmark(&handles[kind], owner);
    spinlock_unlock(&lock);
}

/* Who makes another context counts before it has functions of it. */
void functions_end_last(void) {
    struct allocations *functions = &handles[FUNCTIONS_FUNCTION];
    spinlock_lock(&lock);
    if (growth_contexts() == 0) {
        allocations_mark(functions, ALLOCATIONS_ANY);
        allocations_drop(functions, ALLOCATIONS_ANY, leave, NULL);
    }
    spinlock_unlock(&lock);
}

static void change_ending(int by, bool forgets) {
    spinlock_lock(&lock);
    ending += (unsigned)by;
    if (forgets) forget_all();
    spinlock_unlock(&lock);
}

static void functions_mark(CUcontext context) {
    (void)context;
    change_ending(1, false);
}

static void functions_unmark(CUcontext context) {
    (void)context;
    change_ending(-1, false);
}

static void functions_drop(CUcontext context, uint64_t *sizes) {
    (void)context, (void)sizes;
    change_ending(-1, true);
}

static void functions_reset(void) {
    allocations_reset(&known);
    for (int kind = FUNCTIONS_FUNCTION; kind <= FUNCTIONS_KERNEL; kind++) allocations_reset(&handles[kind]);
    lock = (struct spinlock){0};
    mixed = false;
    ending = 0;
    short_path_reset();
    forget_all();
}
REGISTER_FAMILY(functions, .mark = functions_mark, .unmark = functions_unmark, .drop = functions_drop,
                .reset = functions_reset);
