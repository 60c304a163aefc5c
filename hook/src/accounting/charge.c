/* SPDX-License-Identifier: Apache-2.0 */
#include "accounting/charge.h"

#include "accounting/context_growth.h"
#include "base/no_cancel.h"
#include "requests/interrupt.h"
#include "requests/notice.h"
#include "scheduler/account.h"
#include "scheduler/channel.h"

#include <errno.h>
#include <time.h>

enum { SMALL_STEP = 512, LARGE_STEP = 2 << 20, LARGE = 1 << 20 };
enum { ROOM_MARGIN = 32 << 20 }; /* what the driver may need beside: page tables, code loaded just now */
enum { WATCH_STEPS = 50, LAST_INTERVAL = 1000 }; /* steps of 1 ms between two questions, two blind tries */
enum { LONGEST_AWAY = 10000 };                   /* ms that memory settles without a scheduler */

uint64_t charge_round(uint64_t size) {
    uint64_t step = size < LARGE ? SMALL_STEP : LARGE_STEP;
    return size > UINT64_MAX - step ? size : (size + step - 1) / step * step;
}

bool charge_try(struct charge *charge, uint64_t size) {
    if (!headroom_take(charge, size)) return false;
    if (charge->due && growth_charge(charge->device, charge->call, charge->pending) != CUDA_SUCCESS) {
        headroom_untake(charge);
        return false;
    }
    if (charge->traced) headroom_report(charge, size);
    return true;
}

CUresult charge_open(struct charge *charge, uint64_t size) {
    charge->settling = 0;
    if (size == 0 || charge_try(charge, size)) return CUDA_SUCCESS;
    CUresult result = charge->due ? growth_charge(charge->device, charge->call, 0) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? headroom_add(charge, size, false) : result;
}

CUresult charge_adjust(struct charge *charge, uint64_t size) {
    if (size > charge->size) return charge_open(charge, size - charge->size);
    headroom_give_charged(charge, charge->size - size);
    charge->size = size;
    return CUDA_SUCCESS;
}

void charge_close(struct charge *charge) {
    headroom_give_charged(charge, charge->size);
    charge->size = 0;
}

/* When to ask the driver again. */
struct watch {
    uint64_t seen; /* free memory a step ago: at this much the driver refused, or it was too little */
    int step;      /* ms since the wait began */
    int next_try, interval; /* in steps, when the free memory cannot be seen */
    uint64_t away;          /* notice_clock() when the scheduler was found to be away; 0: it was there */
};

/* What is settling now. While the scheduler is away nobody can tell that it is over: then it is as `before`,
 * for as long as memory is watched for that is in no book, and afterwards nothing. */
static uint64_t charge_query_settling(int device, uint64_t before, struct watch *watch) {
    struct channel_answer answer;
    switch (channel_query((uint32_t)device, NULL, &answer)) {
    case CHANNEL_ANSWERED:
        watch->away = 0;
        return answer.usage.settling;
    case CHANNEL_AWAY:
        if (watch->away == 0) watch->away = notice_clock();
        return notice_clock() - watch->away < LONGEST_AWAY ? before : 0;
    default:
        return 0;
    }
}

/* False when the program is being interrupted: the call has to end. */
static bool charge_pause_a_step(void) {
    struct timespec step = {.tv_nsec = 1000000};
    int saved_errno = errno, cancellation = no_cancel_begin();
    while (nanosleep(&step, &step) < 0 && errno == EINTR) (void)interrupt_asked_asleep();
    no_cancel_end(cancellation);
    errno = saved_errno;
    return !interrupt_is_recent();
}

/* A refused call costs the driver 50 ms, a query of its free memory 4 us: so only growth is worth a try.
 * Blind tries come more and more seldom. */
static bool charge_worth_a_try(const struct charge *charge, struct watch *watch) {
    size_t unused, total;
    if (charge->current && DRIVER(cuMemGetInfo_v2, &unused, &total) == CUDA_SUCCESS) {
        bool grown = unused > watch->seen;
        watch->seen = unused;
        return grown && unused >= charge->size;
    }
    if (watch->step < watch->next_try) return false;
    watch->next_try = watch->step + watch->interval;
    watch->interval = watch->interval < LAST_INTERVAL / 2 ? watch->interval * 2 : LAST_INTERVAL;
    return true;
}

CUresult charge_call_when_settled(const struct charge *charge, charge_attempt *attempt, void *arguments) {
    struct watch watch = {.interval = WATCH_STEPS};
    uint64_t settling = charge->settling;
    if (settling == 0) {
        CUresult result = attempt(arguments);
        if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
        (void)charge_worth_a_try(charge, &watch);
        settling = charge_query_settling(charge->device, 0, &watch);
    }
    for (; settling > 0; watch.step++) {
        if (charge_worth_a_try(charge, &watch)) {
            CUresult result = attempt(arguments);
            if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
        }
        if (!charge_pause_a_step()) break;
        if (watch.step % WATCH_STEPS == WATCH_STEPS - 1)
            settling = charge_query_settling(charge->device, settling, &watch);
    }
    return attempt(arguments); /* nothing settles that is waited for: what the driver says now is the truth */
}

/* Whether the driver has room, as far as that can be seen: then it refuses for a reason of its own. */
static bool charge_has_room(const struct charge *charge) {
    size_t unused, total;
    return charge->current && DRIVER(cuMemGetInfo_v2, &unused, &total) == CUDA_SUCCESS &&
           unused >= charge->size + ROOM_MARGIN;
}

bool charge_again(struct charge *charge, CUresult result, int round) {
    uint64_t size = charge->size;
    if (result == CUDA_SUCCESS) return false;
    bool final = result != CUDA_ERROR_OUT_OF_MEMORY || size == 0 || round + 1 >= CHARGE_ROUNDS;
    bool again = !final && !charge_has_room(charge);
    if (!again && result == CUDA_ERROR_OUT_OF_MEMORY && size > 0) headroom_say_refusal(charge, size);
    charge->size = 0;
    return again && headroom_add(charge, size, true) == CUDA_SUCCESS;
}

CUresult charge_make(struct charge *charge, charge_attempt *attempt, void *arguments) {
    for (int round = 0;; round++) {
        CUresult result = charge_call_when_settled(charge, attempt, arguments);
        if (result == CUDA_SUCCESS) return result;
        headroom_give_charged(charge, charge->size);
        if (!charge_again(charge, result, round)) return result;
    }
}
