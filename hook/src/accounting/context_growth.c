/* SPDX-License-Identifier: Apache-2.0
 *
 * What a measurement proves. Every allocation is charged before the driver makes it and given back after the
 * driver has freed it, so at any moment the driver's count is at most what is charged and what contexts grew
 * uncharged. Between the moment when the account is read and the answer, other threads take more; all that
 * they took is subtracted. So growth is never seen where there is none, and what is missed because
 * allocations are on their way is seen next time. A fall is believed only while no thread took anything,
 * never beyond what growth was charged, and measured again before the next byte is handed out.
 *
 * `measuring` is held across the question and while the growth is charged, which may pause; no call that
 * gives memory back takes it. `state` is a leaf.
 */
#include "accounting/context_growth.h"

#include "accounting/device.h"
#include "accounting/headroom.h"
#include "base/fork_reset.h"
#include "promises/promises.h"
#include "scheduler/account.h"
#include "scheduler/channel.h"
#include "tables/registry.h"

#include <pthread.h>
#include <time.h>

enum { SOON_MS = 5 };

static struct device_growth {
    pthread_mutex_t measuring; /* guards the next two */
    int64_t when;              /* of the last measurement, in ms; 0: the next one must not be spared */
    uint64_t most;             /* used then */
    pthread_mutex_t state;     /* guards the next two; who only looks at the first needs no lock */
    _Atomic int contexts;      /* alive */
    uint64_t grown;            /* bytes charged beyond what the contexts took when they were made */
    _Atomic uint64_t hidden;
    _Atomic uint64_t expected; /* bytes that the driver has, and that are being charged */
    _Atomic bool owed;         /* what was measured last could not be had */
    _Atomic bool suspected;    /* since the account was last read for a measurement */
} devices[CONVGPU_MAX_DEVICES] = {[0 ... CONVGPU_MAX_DEVICES - 1] = {.measuring = PTHREAD_MUTEX_INITIALIZER,
                                                                     .state = PTHREAD_MUTEX_INITIALIZER}};

static _Atomic uint32_t alive; /* contexts of all devices */

/* What is charged for contexts and not promised, and what they take at least. */
struct measurement {
    uint64_t charged, size;
    uint64_t before; /* `charged`, before what was seen of promises became a part of it */
    bool quiet;      /* nobody took memory meanwhile */
};

static int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint64_t less(uint64_t from, uint64_t size) {
    return from > size ? from - size : 0;
}

/* The next measurement comes halfway to the limit, or at once if there is a reason since the last. */
static void growth_watch(uint32_t device) {
    account_watch(device, ACCOUNT_HALFWAY);
    if (devices[device].suspected) account_watch(device, ACCOUNT_NOW);
}

/* What was promised of the rise is growth from now on. */
static uint64_t growth_keep(int device, uint64_t rise) {
    CUcontext context = NULL;
    int current = DEVICE_UNKNOWN;
    (void)device_current(&context, &current);
    uint64_t kept = rise > 0 ? promises_keep(device, context, rise) : 0;
    pthread_mutex_lock(&devices[device].state);
    devices[device].grown += kept;
    pthread_mutex_unlock(&devices[device].state);
    return kept;
}

/* False when nobody knows. */
static bool growth_measure(int device, uint64_t pending, struct measurement *measured) {
    uint32_t number = (uint32_t)device;
    struct channel_answer answer;
    devices[device].suspected = false;
    uint64_t taken = account_taken(number), untaken = registry_untaken(device);
    uint64_t all = account_contexts(number), promised = promises_open(device);
    measured->charged = less(all, promised);
    uint64_t there = account_used(number) + devices[device].expected;
    uint64_t used = less(there, all + pending + devices[device].hidden + untaken);
    if (channel_context(number, measured->charged, used, &answer) != CHANNEL_ANSWERED) return false;
    taken = account_taken(number) - taken;
    taken += less(untaken, registry_untaken(device)); /* meanwhile */
    measured->quiet = taken == 0;
    measured->size = less(answer.context_size.size, taken);
    measured->before = measured->charged;
    bool known = answer.context_size.size > 0;
    if (known) measured->charged += growth_keep(device, less(measured->size, measured->charged));
    if (known)
        growth_watch(number);
    else
        account_watch(number, ACCOUNT_NEVER);
    return known;
}

static void growth_give_back(int device, uint64_t size) {
    account_remove_context((uint32_t)device, size);
    headroom_give(device, size);
}

void growth_context_made(int device) {
    pthread_mutex_lock(&devices[device].state);
    devices[device].contexts++;
    alive++;
    pthread_mutex_unlock(&devices[device].state);
}

void growth_context_ended(int device) {
    struct device_growth *growth = &devices[device];
    uint64_t gone = 0;
    pthread_mutex_lock(&growth->state);
    bool last = --growth->contexts == 0;
    alive--;
    if (last) {
        gone = growth->grown;
        growth->grown = 0;
        growth->owed = false;
    }
    pthread_mutex_unlock(&growth->state);
    if (gone > 0) growth_give_back(device, gone);
    if (!last) growth_fell(device);
}

CUresult growth_correct(int device, const char *call, uint64_t own, uint64_t *more, uint64_t *spare) {
    struct charge charge = {.device = device, .call = call};
    struct measurement measured;
    CUresult result = CUDA_SUCCESS;
    *spare = 0;
    pthread_mutex_lock(&devices[device].measuring);
    if (growth_measure(device, 0, &measured)) {
        uint64_t fall = less(measured.charged, measured.size);
        *spare = fall < own ? fall : own;
        result = headroom_add(&charge, less(measured.size, measured.charged), false);
        account_add_context((uint32_t)device, charge.size);
    }
    pthread_mutex_unlock(&devices[device].measuring);
    *more = charge.size;
    return result;
}

/* Gives back of what was charged for growth; returns how much that was. */
static uint64_t growth_shrink(int device, uint64_t fall) {
    struct device_growth *growth = &devices[device];
    pthread_mutex_lock(&growth->state);
    if (fall > growth->grown) fall = growth->grown;
    growth->grown -= fall;
    pthread_mutex_unlock(&growth->state);
    if (fall > 0) growth_give_back(device, fall);
    return fall;
}

/* `measuring` is held. */
static void growth_believe_fall(int device, const struct measurement *measured) {
    if (growth_shrink(device, less(measured->charged, measured->size)) > 0)
        account_watch((uint32_t)device, ACCOUNT_NOW);
}

/* Whether the same use as now was measured just now: a program that frees and allocates the same large block
 * again and again does not ask each time. */
static bool growth_is_spared(int device) {
    struct device_growth *growth = &devices[device];
    bool soon = growth->when > 0 && milliseconds() - growth->when < SOON_MS;
    return soon && !growth->suspected && account_used((uint32_t)device) <= growth->most;
}

/* When the last context ended meanwhile, there is no growth, and it goes back. */
void growth_add_promised(int device, uint64_t size) {
    struct device_growth *growth = &devices[device];
    pthread_mutex_lock(&growth->state);
    bool lives = growth->contexts > 0;
    if (lives) growth->grown += size;
    pthread_mutex_unlock(&growth->state);
    if (!lives && size > 0) growth_give_back(device, size);
}

void growth_add(int device, uint64_t rise) {
    if (rise == 0) return;
    account_add_context((uint32_t)device, rise);
    growth_add_promised(device, rise);
}

/* `measuring` is held. */
static CUresult growth_take(struct charge *charge, const struct measurement *measured) {
    int device = charge->device;
    struct device_growth *growth = &devices[device];
    CUresult result = headroom_add(charge, less(measured->size, measured->charged), false);
    growth->when = 0;
    growth->owed = result != CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) { /* what is freed next is owed */
        account_watch((uint32_t)device, ACCOUNT_NOW);
        return result;
    }
    if (charge->size > 0) {
        growth_add(device, charge->size);
        growth_watch((uint32_t)device);
    } else if (measured->quiet && measured->size < measured->charged) {
        growth_believe_fall(device, measured);
        return CUDA_SUCCESS;
    }
    growth->when = milliseconds();
    growth->most = account_used((uint32_t)device);
    return CUDA_SUCCESS;
}

CUresult growth_charge(int device, const char *call, uint64_t pending) {
    struct device_growth *growth = &devices[device];
    struct measurement measured;
    CUresult result = CUDA_SUCCESS;
    if (!account_watched((uint32_t)device) || pthread_mutex_trylock(&growth->measuring) != 0) return result;
    if ((pending == 0 || !growth_is_spared(device)) && growth_measure(device, pending, &measured))
        result = growth_take(&(struct charge){.device = device, .call = call}, &measured);
    pthread_mutex_unlock(&growth->measuring);
    return result;
}

CUresult growth_charge_now(int device, const char *call) {
    struct measurement measured;
    CUresult result = CUDA_SUCCESS;
    if (!account_watched((uint32_t)device)) return result;
    pthread_mutex_lock(&devices[device].measuring);
    if (growth_measure(device, 0, &measured))
        result = growth_take(&(struct charge){.device = device, .call = call}, &measured);
    pthread_mutex_unlock(&devices[device].measuring);
    return result;
}

CUresult growth_charge_elsewhere(int device, const char *call) {
    CUresult result = CUDA_SUCCESS;
    for (int other = 0; other < (int)CONVGPU_MAX_DEVICES && result == CUDA_SUCCESS; other++)
        if (other != device && growth_has_contexts(other)) result = growth_charge_now(other, call);
    return result;
}

CUresult growth_settle(int device, const char *call, uint64_t taken, uint64_t *rise) {
    struct measurement measured;
    CUresult result = CUDA_SUCCESS;
    *rise = UINT64_MAX;
    if (!account_watched((uint32_t)device)) return result;
    pthread_mutex_lock(&devices[device].measuring);
    if (growth_measure(device, 0, &measured)) {
        *rise = less(measured.size, less(measured.before, taken));
        result = growth_take(&(struct charge){.device = device, .call = call}, &measured);
    }
    pthread_mutex_unlock(&devices[device].measuring);
    return result;
}

bool growth_is_owed(int device) {
    return devices[device].owed;
}

CUresult growth_charge_owed(int device, const char *call) {
    return device >= 0 && growth_is_owed(device) ? growth_charge_now(device, call) : CUDA_SUCCESS;
}

void growth_give(int device, uint64_t size) {
    (void)growth_shrink(device, size);
}

void growth_give_promised(int device, uint64_t size) {
    if (size > 0) growth_give_back(device, size);
}

uint32_t growth_contexts(void) {
    return alive;
}

bool growth_has_contexts(int device) {
    return devices[device].contexts > 0;
}

bool growth_look(int device) {
    struct measurement measured;
    if (!account_watched((uint32_t)device) || pthread_mutex_trylock(&devices[device].measuring) != 0)
        return false;
    bool known = growth_measure(device, 0, &measured);
    if (known) growth_believe_fall(device, &measured);
    pthread_mutex_unlock(&devices[device].measuring);
    return known && measured.quiet;
}

void growth_fell(int device) {
    (void)growth_look(device);
}

void growth_fell_elsewhere(int device) {
    for (int other = 0; other < (int)CONVGPU_MAX_DEVICES; other++)
        if (other != device && devices[other].grown > 0) growth_fell(other);
}

void growth_suspect(int device) {
    devices[device].suspected = true;
    if (account_watched((uint32_t)device)) account_watch((uint32_t)device, ACCOUNT_NOW);
}

void growth_expect(int device, uint64_t size) {
    devices[device].expected += size;
}

void growth_expected(int device, uint64_t size) {
    devices[device].expected -= size;
}

void growth_hide(int device, uint64_t size) {
    devices[device].hidden += size;
}

void growth_show(int device, uint64_t size) {
    devices[device].hidden -= size;
}

static void growth_reset(void) {
    for (uint32_t device = 0; device < CONVGPU_MAX_DEVICES; device++)
        devices[device] = (struct device_growth){.measuring = PTHREAD_MUTEX_INITIALIZER,
                                                 .state = PTHREAD_MUTEX_INITIALIZER};
    alive = 0;
}
RESET_IN_CHILD(growth_reset);
