/* SPDX-License-Identifier: Apache-2.0 */
#include "accounting/charge.h"

#include "scheduler/account.h"
#include "scheduler/channel.h"
#include "base/fork_reset.h"
#include "calls/graph.h"
#include "accounting/context_growth.h"
#include "base/log.h"
#include "calls/pool.h"
#include "base/no_cancel.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

enum { SMALL_STEP = 512, LARGE_STEP = 2 << 20, LARGE = 1 << 20 };
enum { WATCH_STEPS = 50, LAST_INTERVAL = 1000 }; /* steps of 1 ms between two questions, two blind tries */

static _Atomic bool told; /* the line about the first rejection was printed */

uint64_t charge_round(uint64_t size) {
    uint64_t step = size < LARGE ? SMALL_STEP : LARGE_STEP;
    return size > UINT64_MAX - step ? size : (size + step - 1) / step * step;
}

/* One line for the first rejection; frameworks probe for the limit, and the rest would be noise. */
static void say_rejected(int device, uint64_t size, const char *call, const struct channel_answer *answer) {
    static const char *const reasons[] = {
        [CONVGPU_REASON_LIMIT] = "it would exceed the limit",
        [CONVGPU_REASON_DEADLINE] = "the time to wait (option `wait`) is over",
        [CONVGPU_REASON_DEVICE] = "the container has no limit on this device",
        [CONVGPU_REASON_DRIVER] = "the driver refuses it, though it is within what may be handed out",
    };
    uint32_t reason = answer->rejected.reason;
    const char *text =
        reason < sizeof reasons / sizeof reasons[0] && reasons[reason] ? reasons[reason] : "unknown reason";
    bool before = atomic_exchange(&told, true);
    (before ? log_debug
            : log_refusal)("%s of %llu bytes on device %d rejected: %s (limit %llu, in use %llu).", call,
                           (unsigned long long)size, device, text, (unsigned long long)answer->rejected.limit,
                           (unsigned long long)answer->rejected.used);
}

/* Before anybody waits or is refused: what this process has cached comes back, as the driver itself does it
 * before an allocation fails. */
static bool take_after_reclaim(int device, uint64_t size) {
    pool_reclaim(device, false);
    graph_reclaim(device, false);
    if (account_take((uint32_t)device, size)) return true;
    pool_reclaim(device, true);
    graph_reclaim(device, true);
    return account_take((uint32_t)device, size);
}

static bool ask(int device, uint64_t size, const char *call, bool refused, uint64_t *settling) {
    struct channel_answer answer;
    if (channel_allocate((uint32_t)device, size, call, refused, &answer) != CHANNEL_ANSWERED)
        return false; /* refused: the channel has said why */
    if (answer.kind == CONVGPU_REJECTED) {
        say_rejected(device, size, call, &answer);
        return false;
    }
    *settling = answer.accepted.settling;
    return true;
}

CUresult charge_ask(int device, uint64_t size, const char *call, uint64_t *settling) {
    *settling = 0;
    if (size == 0 || account_take((uint32_t)device, size)) return CUDA_SUCCESS;
    if (take_after_reclaim(device, size)) return CUDA_SUCCESS;
    return ask(device, size, call, false, settling) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool charge_try(int device, uint64_t size, const char *call) {
    if (!account_take((uint32_t)device, size)) return false;
    if (!account_due((uint32_t)device, 0) || growth_charge(device, call, size) == CUDA_SUCCESS) return true;
    charge_give(device, size);
    return false;
}

CUresult charge_take(int device, uint64_t size, const char *call, uint64_t *settling) {
    *settling = 0;
    if (size == 0 || charge_try(device, size, call)) return CUDA_SUCCESS;
    if (account_due((uint32_t)device, size)) {
        CUresult result = growth_charge(device, call, 0);
        if (result != CUDA_SUCCESS) return result;
    }
    return charge_ask(device, size, call, settling);
}

void charge_give(int device, uint64_t size) {
    if (account_give((uint32_t)device, size)) channel_freed((uint32_t)device);
}

/* What is settling now; `before` while the scheduler is away, for then nobody can tell that it is over. */
static uint64_t ask_settling(int device, uint64_t before) {
    struct channel_answer answer;
    switch (channel_query((uint32_t)device, &answer)) {
    case CHANNEL_ANSWERED:
        return answer.usage.settling;
    case CHANNEL_AWAY:
        return before;
    default:
        return 0;
    }
}

static void pause_a_step(void) {
    struct timespec step = {.tv_nsec = 1000000};
    int saved_errno = errno, cancellation = uncancelled_begin();
    while (nanosleep(&step, &step) < 0 && errno == EINTR) continue;
    uncancelled_end(cancellation);
    errno = saved_errno;
}

/* When to ask the driver again. */
struct watch {
    bool context;  /* the calling thread's context is on the device, so its free memory can be seen */
    uint64_t seen; /* free memory a step ago: at this much the driver refused, or it was too little */
    int step;      /* ms since the wait began */
    int next_try, interval; /* in steps, when the free memory cannot be seen */
};

/* A refused call costs the driver 50 ms, a look at its free memory 4 us: so only growth is worth a try. Blind
 * tries come more and more seldom. */
static bool worth_a_try(struct watch *watch, uint64_t size) {
    size_t unused, total;
    if (watch->context && DRIVER(cuMemGetInfo_v2, &unused, &total) == CUDA_SUCCESS) {
        bool grown = unused > watch->seen;
        watch->seen = unused;
        return grown && unused >= size;
    }
    if (watch->step < watch->next_try) return false;
    watch->next_try = watch->step + watch->interval;
    watch->interval = watch->interval < LAST_INTERVAL / 2 ? watch->interval * 2 : LAST_INTERVAL;
    return true;
}

CUresult charge_settle(int device, uint64_t size, uint64_t settling, bool context, charge_attempt *attempt,
                       void *arguments) {
    struct watch watch = {.context = context, .interval = WATCH_STEPS};
    if (settling == 0) {
        CUresult result = attempt(arguments);
        if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
        (void)worth_a_try(&watch, UINT64_MAX);
        settling = ask_settling(device, 0);
    }
    for (; settling > 0; watch.step++) {
        if (worth_a_try(&watch, size)) {
            CUresult result = attempt(arguments);
            if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
        }
        pause_a_step();
        if (watch.step % WATCH_STEPS == WATCH_STEPS - 1) settling = ask_settling(device, settling);
    }
    return attempt(arguments); /* nothing settles any more: whatever the driver says now is the truth */
}

/* Whether the driver has room, as far as that can be seen: then it refuses for a reason of its own. */
static bool has_room(uint64_t size, bool context) {
    size_t unused, total;
    return context && DRIVER(cuMemGetInfo_v2, &unused, &total) == CUDA_SUCCESS && unused >= size;
}

bool charge_again(int device, uint64_t size, const char *call, bool context, CUresult word, int round,
                  uint64_t *settling) {
    if (word != CUDA_ERROR_OUT_OF_MEMORY || size == 0 || round + 1 >= CHARGE_ROUNDS) return false;
    return !has_room(size, context) && ask(device, size, call, true, settling);
}

CUresult charge_make(int device, uint64_t size, const char *call, uint64_t settling, bool context,
                     charge_attempt *attempt, void *arguments) {
    for (int round = 0;; round++) {
        CUresult result = charge_settle(device, size, settling, context, attempt, arguments);
        if (result == CUDA_SUCCESS) return result;
        charge_give(device, size);
        if (!charge_again(device, size, call, context, result, round, &settling)) return result;
    }
}

static void charge_reset(void) {
    told = false;
}
FORGET_IN_CHILD(charge_reset);
