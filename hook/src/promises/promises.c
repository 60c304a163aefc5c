/* SPDX-License-Identifier: Apache-2.0 */
#include "promises/promises.h"

#include "base/fork_reset.h"
#include "base/spinlock.h"

enum { MOST = 512 };

struct row {
    struct promise promise;
    uint64_t size; /* not kept yet */
    uint64_t next; /* of these comes next, if it is known; 0: all */
};

static struct spinlock lock; /* guards the rest */
static struct row rows[MOST];
static int count;

static bool is_same(const struct promise *one, const struct promise *other) {
    return one->kind == other->kind && one->device == other->device && one->context == other->context &&
           one->owner == other->owner;
}

static struct row *find(const struct promise *promise) {
    for (int index = 0; index < count; index++)
        if (is_same(&rows[index].promise, promise)) return &rows[index];
    return NULL;
}

bool promises_add(const struct promise *promise, uint64_t size) {
    spinlock_lock(&lock);
    struct row *row = find(promise);
    if (!row && count < MOST) {
        row = &rows[count++];
        *row = (struct row){.promise = *promise};
    }
    if (row) row->size += size;
    spinlock_unlock(&lock);
    return row != NULL;
}

void promises_rename(uint64_t from, uint64_t to) {
    spinlock_lock(&lock);
    for (int index = 0; index < count; index++)
        if (rows[index].promise.owner == from) rows[index].promise.owner = to;
    spinlock_unlock(&lock);
}

bool promises_know(const struct promise *promise) {
    spinlock_lock(&lock);
    bool known = find(promise) != NULL;
    spinlock_unlock(&lock);
    return known;
}

uint64_t promises_take_back(const struct promise *promise, uint64_t size) {
    spinlock_lock(&lock);
    struct row *row = find(promise);
    uint64_t taken = !row ? 0 : row->size < size ? row->size : size;
    if (row) row->size -= taken;
    spinlock_unlock(&lock);
    return taken;
}

uint64_t promises_left(const struct promise *promise) {
    spinlock_lock(&lock);
    const struct row *row = find(promise);
    uint64_t size = row ? row->size : 0;
    spinlock_unlock(&lock);
    return size;
}

uint64_t promises_expect(const struct promise *promise, uint64_t size) {
    spinlock_lock(&lock);
    struct row *row = find(promise);
    uint64_t before = row ? row->next : 0;
    if (row) row->next = row->size < size ? row->size : size;
    spinlock_unlock(&lock);
    return before;
}

uint64_t promises_open(int device) {
    uint64_t sum = 0;
    spinlock_lock(&lock);
    for (int index = 0; index < count; index++)
        if (rows[index].promise.device == device) sum += rows[index].size;
    spinlock_unlock(&lock);
    return sum;
}

static uint64_t part(const struct row *row) {
    return row->next > 0 && row->next < row->size ? row->next : row->size;
}

/* What of a promise is seen at least when it is kept. Other growth may be half of the driver's code, of which
 * is known what it takes (64 of 66 MiB at least). */
static uint64_t least(const struct row *row) {
    return row->promise.kind == PROMISE_DRIVER_CODE ? part(row) / 10 * 9 : part(row) / 2;
}

/* What of the rise is a kept promise's: launches are promised a 47th too much (code/driver_code.h), which
 * may be most of the driver's code that comes with them. */
static uint64_t shows(const struct row *row) {
    return row->promise.kind == PROMISE_LAUNCHES ? row->size - row->size / 32 : part(row);
}

/* The largest promise of which at least that much is in `rise`, of those to this context if there is one. */
static struct row *largest(int device, CUcontext context, uint64_t rise) {
    struct row *best = NULL, *near = NULL;
    for (int index = 0; index < count; index++) {
        struct row *row = &rows[index];
        bool fits = row->promise.device == device && row->size > 0 && least(row) <= rise;
        if (fits && (!best || part(row) > part(best))) best = row;
        if (fits && row->promise.context == context && (!near || part(row) > part(near))) near = row;
    }
    return near ? near : best;
}

uint64_t promises_keep(int device, CUcontext context, uint64_t rise) {
    uint64_t kept = 0;
    struct row *row;
    spinlock_lock(&lock);
    while (rise > 0 && (row = largest(device, context, rise))) {
        uint64_t shown = shows(row), now = part(row);
        rise = rise > shown ? rise - shown : 0;
        kept += now;
        row->size -= now;
        row->next = 0;
    }
    spinlock_unlock(&lock);
    return kept;
}

static void forget(const CUcontext *context, const uint64_t *owner, uint64_t *sizes) {
    spinlock_lock(&lock);
    for (int index = count; index-- > 0;) {
        const struct promise *promise = &rows[index].promise;
        if (context ? promise->context != *context : promise->owner != *owner) continue;
        sizes[promise->device] += rows[index].size;
        rows[index] = rows[--count];
    }
    spinlock_unlock(&lock);
}

void promises_forget_context(CUcontext context, uint64_t *sizes) {
    forget(&context, NULL, sizes);
}

void promises_forget_owner(uint64_t owner, uint64_t *sizes) {
    forget(NULL, &owner, sizes);
}

void promises_enumerate(promises_visit *visit, void *argument) {
    spinlock_lock(&lock);
    for (int index = 0; index < count; index++)
        if (rows[index].size > 0) visit(&rows[index].promise, rows[index].size, argument);
    spinlock_unlock(&lock);
}

static void promises_reset(void) {
    lock = (struct spinlock){0};
    count = 0;
}
RESET_IN_CHILD(promises_reset);
