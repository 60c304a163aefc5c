/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies: which units they have, and what the index says of them. Memory for units is growth.c's business.
 */
#include "pool/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pool/units.h"

#define BUCKETS 4096u /* with 64 MiB pieces a TiB has 16,384 copies */

static struct copy *buckets[BUCKETS];
pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static bool same_owner(struct owner one, struct owner other) {
    return one.pid == other.pid && one.started == other.started;
}

static bool same_name(const struct copy_name *one, const struct copy_name *other) {
    return same_owner(one->owner, other->owner) && one->piece == other->piece &&
           memcmp(one->device, other->device, sizeof one->device) == 0;
}

static struct copy **bucket_of(const struct copy_name *name) {
    uint64_t hash = (name->piece >> 21) ^ ((uint64_t)name->owner.pid << 32) ^ name->owner.started;
    return &buckets[(hash * UINT64_C(0x9E3779B97F4A7C15)) >> 52];
}

static struct copy *find(const struct copy_name *name) {
    struct copy *copy = *bucket_of(name);
    while (copy != NULL && (copy->doomed || !same_name(&copy->name, name))) copy = copy->next;
    return copy;
}

static unsigned parts_of(uint64_t size) {
    return (unsigned)(size / POOL_UNIT);
}

/* Takes units for a new copy, in one run if there is one. */
static bool take_units(struct copy *copy) {
    unsigned wanted = parts_of(copy->size);
    if (!units_take(copy->unit, wanted)) return false;
    for (unsigned part = 0; part < wanted; part++) {
        struct unit *unit = units_entry(copy->unit[part]);
        unit->pid = copy->name.owner.pid;
        unit->started = copy->name.owner.started;
        unit->piece = copy->name.piece;
        memcpy(unit->device, copy->name.device, sizeof unit->device);
        unit->part = part;
        unit->parts = wanted;
        atomic_store(&unit->state, UNIT_FILLING);
    }
    return true;
}

static void mark(struct copy *copy, enum unit_state state) {
    for (unsigned part = 0; part < parts_of(copy->size); part++)
        atomic_store(&units_entry(copy->unit[part])->state, state);
}

static void drop(struct copy *copy) {
    struct copy **link = bucket_of(&copy->name);
    while (*link != copy) link = &(*link)->next;
    *link = copy->next;
    mark(copy, UNIT_FREE);
    units_give(copy->unit, parts_of(copy->size));
    free(copy);
}

/* Frees a copy, at once or when no copy engine works on it any more. */
static uint64_t give_up(struct copy *copy) {
    uint64_t size = copy->size;
    if (copy->busy) {
        copy->doomed = true;
    } else {
        drop(copy);
    }
    return size;
}

static struct copy *insert(const struct copy_name *name, uint64_t size) {
    struct copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL) return NULL;
    copy->name = *name;
    copy->size = size;
    struct copy **bucket = bucket_of(name);
    copy->next = *bucket;
    *bucket = copy;
    return copy;
}

/* Whoever hands one piece over under many names gets no more of the pool than was ordered. */
static bool may_have(struct owner owner, uint64_t size, uint64_t most) {
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct copy *copy = buckets[i]; copy != NULL; copy = copy->next)
            if (same_owner(copy->name.owner, owner)) size += copy->size;
    return size <= most;
}

struct copy *pool_begin_out(const struct copy_name *name, uint64_t size, uint64_t most, uint64_t carrier) {
    pthread_mutex_lock(&pool_lock);
    struct copy *copy = find(name);
    bool refused = copy != NULL && copy->busy;
    if (copy != NULL && !refused) drop(copy);
    copy = refused || !may_have(name->owner, size, most) ? NULL : insert(name, size);
    if (copy != NULL && !take_units(copy)) {
        copy->size = 0;
        drop(copy);
        copy = NULL;
    }
    if (copy != NULL) {
        copy->asserted = carrier;
        copy->busy = true;
    }
    pthread_mutex_unlock(&pool_lock);
    return copy;
}

struct copy *pool_begin_in(const struct copy_name *name, uint64_t size, uint64_t carrier) {
    pthread_mutex_lock(&pool_lock);
    struct copy *copy = find(name);
    if (copy != NULL && (!copy->complete || copy->busy || copy->size != size)) copy = NULL;
    if (copy != NULL) {
        copy->asserted = carrier;
        copy->busy = true;
    }
    pthread_mutex_unlock(&pool_lock);
    return copy;
}

static void end(struct copy *copy, bool keep) {
    copy->busy = false;
    if (!keep || copy->doomed) drop(copy);
}

void pool_end_out(struct copy *copy, bool complete) {
    pthread_mutex_lock(&pool_lock);
    if (complete && !copy->doomed) {
        mark(copy, UNIT_FULL);
        copy->complete = true;
    }
    end(copy, complete);
    pthread_mutex_unlock(&pool_lock);
}

void pool_end_in(struct copy *copy, bool dropped) {
    pthread_mutex_lock(&pool_lock);
    end(copy, !dropped);
    pthread_mutex_unlock(&pool_lock);
}

bool pool_assert(const struct copy_name *name, uint64_t size, uint64_t carrier) {
    pthread_mutex_lock(&pool_lock);
    struct copy *copy = find(name);
    bool there = copy != NULL && copy->complete && copy->size == size;
    if (there) copy->asserted = carrier;
    pthread_mutex_unlock(&pool_lock);
    return there;
}

uint64_t pool_forget(const struct copy_name *name) {
    pthread_mutex_lock(&pool_lock);
    struct copy *copy = find(name);
    uint64_t size = copy != NULL && copy->complete ? copy->size : 0;
    if (copy != NULL) give_up(copy);
    pthread_mutex_unlock(&pool_lock);
    return size;
}

uint64_t pool_sweep(struct owner owner, uint64_t carrier) {
    uint64_t freed = 0;
    pthread_mutex_lock(&pool_lock);
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct copy *copy = buckets[i], *next; copy != NULL; copy = next) {
            next = copy->next;
            bool needed = carrier != 0 && copy->asserted == carrier;
            if (same_owner(copy->name.owner, owner) && !copy->doomed && !needed) freed += give_up(copy);
        }
    }
    pthread_mutex_unlock(&pool_lock);
    return freed;
}

void *pool_address(const struct copy *copy, unsigned index) {
    return units_address(copy->unit[index]);
}

unsigned pool_run(const struct copy *copy, unsigned index) {
    unsigned parts = parts_of(copy->size), run = 1;
    while (index + run < parts && copy->unit[index + run] == copy->unit[index] + run &&
           !units_begins_registration(copy->unit[index + run]))
        run++;
    return run;
}

/* ---- copies of an earlier porter ----------------------------------------------------------------------- */

/* Adds a unit of the index to its copy; a copy with units that were not complete is dropped by `judge`. */
static void adopt_unit(uint32_t number) {
    const struct unit *unit = units_entry(number);
    struct copy_name name = {.owner = {unit->pid, unit->started}, .piece = unit->piece};
    memcpy(name.device, unit->device, sizeof name.device);
    bool valid = atomic_load(&unit->state) == UNIT_FULL && unit->parts >= 1 && unit->parts <= POOL_PARTS &&
                 unit->part < unit->parts;
    struct copy *copy = valid ? find(&name) : NULL;
    if (valid && copy == NULL) copy = insert(&name, unit->parts * POOL_UNIT);
    if (copy == NULL || copy->size != unit->parts * POOL_UNIT || copy->unit[unit->part] != 0) {
        units_entry(number)->state = UNIT_FREE;
        return;
    }
    copy->unit[unit->part] = number + 1; /* 0: not found yet */
}

/* Completes a copy all of whose units were found, and drops any other. */
static void judge(struct copy *copy) {
    unsigned parts = parts_of(copy->size), found = 0;
    for (unsigned part = 0; part < parts; part++) found += copy->unit[part] != 0;
    copy->complete = found == parts;
    for (unsigned part = 0; part < parts; part++) {
        if (copy->unit[part] == 0) continue;
        if (!copy->complete) units_entry(copy->unit[part] - 1)->state = UNIT_FREE;
        copy->unit[part]--;
    }
    if (copy->complete) {
        for (unsigned part = 0; part < parts; part++) units_claim(copy->unit[part]);
    } else {
        copy->size = 0; /* has no units to give back */
        drop(copy);
    }
}

bool pool_open(const char *path) {
    if (!units_open(path)) return false;
    for (uint32_t number = 0; number < units_count(); number++)
        if (atomic_load(&units_entry(number)->state) != UNIT_FREE) adopt_unit(number);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct copy *copy = buckets[i], *next; copy != NULL; copy = next) {
            next = copy->next;
            judge(copy);
        }
    units_offer();
    return true;
}

struct owner *pool_owners(size_t *count) {
    struct owner *owners = NULL;
    *count = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct copy *copy = buckets[i]; copy != NULL; copy = copy->next) {
            struct owner *longer = realloc(owners, (*count + 1) * sizeof *owners);
            if (longer == NULL) return owners;
            owners = longer;
            owners[(*count)++] = copy->name.owner;
        }
    }
    return owners;
}
