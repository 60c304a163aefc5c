/* SPDX-License-Identifier: Apache-2.0
 *
 * `promising` of a device is held while it is charged, which may pause; what frees memory does not take it.
 * `knowing` is never held while paused.
 */
#include "code/driver_code.h"

#include "accounting/context_growth.h"
#include "base/fork_reset.h"
#include "code/promise.h"
#include "images/driver_calls.h"
#include "scheduler/account.h"
#include "tables/registry.h"

#include <pthread.h>

enum { LAUNCHES = 2048, EACH = 9600, MOST = 512 };

/* MiB that a context takes with the first code that calls one of these, whatever comes in which order. */
static const struct {
    unsigned calls;
    uint64_t size;
} pieces[] = {
    {CALLS_PRINT | CALLS_ASSERT, 2},
    {CALLS_PRINT | CALLS_ASSERT | CALLS_HEAP | CALLS_LAUNCH, 62},
    {CALLS_ASSERT | CALLS_HEAP | CALLS_LAUNCH, 16},
    {CALLS_ASSERT | CALLS_HEAP, 12},
    {CALLS_HEAP, 48},
    {CALLS_LAUNCH, 20},
    {CALLS_PRINT | CALLS_ASSERT | CALLS_HEAP | CALLS_LAUNCH, 2}, /* to spare: seen in steps of that */
};
enum { PIECES = sizeof pieces / sizeof pieces[0] };

/* What is known of a context: sets of calls, of which a promise is being made for those `asked`. */
struct known {
    CUcontext context;
    int device;
    unsigned promised, asked, there;
    uint64_t before; /* bytes that were seen of the device's contexts before the last load */
};

static pthread_mutex_t promising[CONVGPU_MAX_DEVICES] = {[0 ... CONVGPU_MAX_DEVICES - 1] =
                                                             PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t knowing = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static struct known contexts[MOST];
static int count;
static uint64_t users;

static uint64_t need(unsigned calls) {
    uint64_t size = 0;
    for (int index = 0; index < PIECES; index++)
        if (pieces[index].calls & calls) size += pieces[index].size << 20;
    return size;
}

static struct promise promise_of(int device, CUcontext context) {
    return (struct promise){.kind = PROMISE_DRIVER_CODE, .device = device, .context = context};
}

static struct known *find(CUcontext context) {
    for (int index = 0; index < count; index++)
        if (contexts[index].context == context) return &contexts[index];
    return NULL;
}

/* NULL: no room for another one. */
static struct known *find_or_add(int device, CUcontext context) {
    struct known *known = find(context);
    if (known || count == MOST) return known;
    contexts[count] = (struct known){.context = context, .device = device};
    return &contexts[count++];
}

/* What was seen of the contexts of a device. */
static uint64_t shown(int device) {
    uint64_t all = account_contexts((uint32_t)device), promised = promises_open(device);
    return all > promised ? all - promised : 0;
}

/* Takes back of what is promised to it what code that is not there yet will not need. What that was is for
 * the caller to give: a measurement may keep some meanwhile. */
static uint64_t take_excess(const struct known *known) {
    const struct promise promise = promise_of(known->device, known->context);
    uint64_t left = promises_left(&promise);
    uint64_t due = need(known->promised | known->asked | known->there) - need(known->there);
    return promises_take_back(&promise, left > due ? left - due : 0);
}

void driver_code_begin(void) {
    pthread_mutex_lock(&knowing);
    users++;
    pthread_mutex_unlock(&knowing);
}

/* `promising` is held, so that nobody else asks on this device. */
static CUresult promise_more(int device, CUcontext context, const char *call, unsigned calls) {
    const struct promise promise = promise_of(device, context);
    pthread_mutex_lock(&knowing);
    struct known *known = find_or_add(device, context);
    uint64_t more = known ? need(known->promised | calls) - need(known->promised) : 0;
    if (known) known->asked = calls;
    pthread_mutex_unlock(&knowing);
    if (!known) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = more > 0 ? promise_make(&promise, call, more) : CUDA_SUCCESS;
    pthread_mutex_lock(&knowing);
    if ((known = find(context))) {
        known->asked = 0;
        if (result == CUDA_SUCCESS) known->promised |= calls;
    }
    pthread_mutex_unlock(&knowing);
    if (!known && result == CUDA_SUCCESS) promise_withdraw(&promise, more); /* it ended meanwhile */
    return result;
}

static bool is_promised(CUcontext context, unsigned calls) {
    pthread_mutex_lock(&knowing);
    const struct known *known = find(context);
    bool promised = known && (calls & ~known->promised) == 0;
    pthread_mutex_unlock(&knowing);
    return promised;
}

/* What comes next is told apart, so that it is known when it is kept (promises/promises.h). */
static void expect(int device, CUcontext context, unsigned calls) {
    const struct promise promise = promise_of(device, context);
    pthread_mutex_lock(&knowing);
    struct known *known = find(context);
    if (known && (calls & ~known->there) != 0) {
        (void)promises_expect(&promise, need(known->there | calls) - need(known->there));
        known->before = shown(device);
    }
    pthread_mutex_unlock(&knowing);
}

CUresult driver_code_promise(int device, CUcontext context, const char *call, unsigned calls) {
    CUresult result = CUDA_SUCCESS;
    if (!is_promised(context, calls)) {
        pthread_mutex_lock(&promising[device]);
        if (!is_promised(context, calls)) result = promise_more(device, context, call, calls);
        pthread_mutex_unlock(&promising[device]);
    }
    if (result == CUDA_SUCCESS) expect(device, context, calls);
    return result;
}

/* Whether such code came with the last load is measured, for others may have made the free memory rise
 * meanwhile; at least half, as another driver may take less. What only has such a name takes nothing: the
 * next code is promised anew, unless other code may need what is promised already. */
static void conclude(struct known *known, unsigned calls) {
    const struct promise promise = promise_of(known->device, known->context);
    uint64_t lacking = promises_expect(&promise, 0);
    if (lacking == 0 || shown(known->device) >= known->before + lacking / 2)
        known->there |= calls;
    else if (users == 1)
        known->promised &= ~calls | known->there;
}

/* Where nobody measures, the promise stands for what is taken. */
void driver_code_settle(const struct sample *in, unsigned calls) {
    uint64_t size = 0;
    if (in->device < 0) return;
    pthread_mutex_lock(&knowing);
    const struct known *known = find(in->context);
    bool is_new = known && (calls & ~known->there) != 0;
    pthread_mutex_unlock(&knowing);
    if (!is_new || !growth_look(in->device)) return;
    pthread_mutex_lock(&knowing);
    struct known *now = find(in->context);
    if (now) conclude(now, calls);
    if (now) size = take_excess(now);
    pthread_mutex_unlock(&knowing);
    growth_give_promised(in->device, size);
}

/* What is promised on the device and not kept. */
static uint64_t left_on(int device) {
    uint64_t sum = 0;
    pthread_mutex_lock(&knowing);
    for (int index = 0; index < count; index++) {
        const struct promise promise = promise_of(device, contexts[index].context);
        sum += promises_left(&promise);
    }
    pthread_mutex_unlock(&knowing);
    return sum;
}

/* Nothing of it is due any more, unless somebody uses some again. */
static uint64_t take_left_on(int device) {
    uint64_t sum = 0;
    pthread_mutex_lock(&knowing);
    for (int index = 0; index < count && users == 0; index++) {
        const struct promise promise = promise_of(device, contexts[index].context);
        uint64_t taken = promises_take_back(&promise, UINT64_MAX);
        if (taken > 0) contexts[index].promised = contexts[index].there;
        sum += taken;
    }
    pthread_mutex_unlock(&knowing);
    return sum;
}

void driver_code_end(void) {
    pthread_mutex_lock(&knowing);
    bool last = --users == 0;
    pthread_mutex_unlock(&knowing);
    for (int device = 0; last && device < (int)CONVGPU_MAX_DEVICES; device++)
        if (left_on(device) > 0 && growth_look(device)) growth_give_promised(device, take_left_on(device));
}

uint64_t driver_code_launches(size_t launches) {
    uint64_t bytes = 0;
    if (launches <= LAUNCHES) return 0;
    return __builtin_mul_overflow(launches - LAUNCHES, (uint64_t)EACH, &bytes) ? UINT64_MAX : bytes;
}

/* What was promised to it goes with it (code/promise.c). */
static void driver_code_drop(CUcontext context, uint64_t *sizes) {
    (void)sizes;
    pthread_mutex_lock(&knowing);
    struct known *known = find(context);
    if (known) *known = contexts[--count];
    pthread_mutex_unlock(&knowing);
}

static void driver_code_reset(void) {
    for (uint32_t device = 0; device < CONVGPU_MAX_DEVICES; device++)
        promising[device] = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    knowing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    count = 0;
    users = 0;
}
REGISTER_FAMILY(driver_code, .drop = driver_code_drop, .reset = driver_code_reset);
