/* SPDX-License-Identifier: Apache-2.0 */
#include "accounting/headroom.h"

#include "base/fork_reset.h"
#include "base/log.h"
#include "base/size_text.h"
#include "scheduler/account.h"
#include "scheduler/channel.h"
#include "tables/registry.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum { MAX_KINDS = 16 };

static _Atomic bool warned; /* the line about the first rejection was printed */

/* What this process holds of a device, by kind. */
struct holdings {
    int device;
    int kinds;
    struct {
        const char *kind;
        unsigned long long count, size;
    } rows[MAX_KINDS];
};

static void headroom_add_holding(const struct live_allocation *allocation, void *argument) {
    struct holdings *holdings = argument;
    int row = 0;
    if (allocation->device != holdings->device) return;
    while (row < holdings->kinds && holdings->rows[row].kind != allocation->kind) row++;
    if (row == MAX_KINDS) return;
    if (row == holdings->kinds) holdings->rows[holdings->kinds++].kind = allocation->kind;
    holdings->rows[row].count++;
    holdings->rows[row].size += allocation->size;
}

static void headroom_say_holdings(int device) {
    struct holdings holdings = {.device = device};
    char size[SIZE_TEXT];
    if (!log_is_debugging()) return;
    registry_enumerate(headroom_add_holding, &holdings);
    for (int row = 0; row < holdings.kinds; row++)
        log_debug("on device %d this process holds %s: %llu allocations, %s.", device,
                  holdings.rows[row].kind, holdings.rows[row].count,
                  size_text(size, holdings.rows[row].size));
}

static const char *headroom_describe(uint32_t reason) {
    static const char *const reasons[] = {
        [CONVGPU_REASON_LIMIT] = "it would exceed the limit",
        [CONVGPU_REASON_DEADLINE] = "the time to wait (option `wait`) is over",
        [CONVGPU_REASON_DEVICE] = "the container has no limit on this device",
        [CONVGPU_REASON_DRIVER] = "the driver refuses it, though it is within what may be handed out",
        [CONVGPU_REASON_DISPLACED] = "the GPU that was chosen for this container is lost or drained; start "
                                     "the program again, and it gets "
                                     "another one",
        [CONVGPU_REASON_INTERRUPTED] = "the program was interrupted while it was paused",
    };
    bool known = reason < sizeof reasons / sizeof reasons[0] && reasons[reason];
    return known ? reasons[reason] : "unknown reason";
}

/* With a limit below what a context takes no program can begin: a larger one is the only remedy. */
static const char *headroom_why(const struct charge *charge, uint64_t size,
                                const struct convgpu_rejected *rejected) {
    bool hopeless = charge->context && charge->size + size > rejected->limit;
    if (rejected->reason == CONVGPU_REASON_LIMIT && hopeless)
        return "a CUDA context alone takes more than the limit: raise it";
    return headroom_describe(rejected->reason);
}

static bool take_fixed(int device, uint64_t size, bool *traced) {
    if (!account_take_fixed((uint32_t)device, size)) return false;
    if (account_take((uint32_t)device, size, traced)) return true;
    account_give_fixed((uint32_t)device, size);
    return false;
}

bool headroom_take_fixed(int device, uint64_t size) {
    return take_fixed(device, size, NULL);
}

static bool headroom_take_charged(const struct charge *charge, uint64_t size, bool *traced) {
    *traced = false;
    return charge->movable ? account_take((uint32_t)charge->device, size, traced)
                           : take_fixed(charge->device, size, traced);
}

bool headroom_take(struct charge *charge, uint64_t size) {
    charge->due = account_due((uint32_t)charge->device, size);
    bool taken = headroom_take_charged(charge, size, &charge->traced);
    charge->pending = taken ? size : 0;
    charge->size += charge->pending;
    return taken;
}

void headroom_report(const struct charge *charge, uint64_t size) {
    struct convgpu_traced traced = {.device = (uint32_t)account_row((uint32_t)charge->device),
                                    .size = charge->asked ? charge->asked : size};
    int saved_errno = errno;
    strncpy(traced.call, charge->call, sizeof traced.call - 1);
    (void)channel_tell(CONVGPU_TRACED, &traced, sizeof traced);
    errno = saved_errno;
}

void headroom_untake(struct charge *charge) {
    charge->size -= charge->pending;
    headroom_give_charged(charge, charge->pending);
    charge->pending = 0;
}

/* The first rejection is one line; frameworks probe for the limit, and the rest would be noise. */
static void headroom_say_rejection(const struct charge *charge, uint64_t size, const char *why,
                                   const struct convgpu_rejected *rejected) {
    void (*say)(const char *, ...) = atomic_exchange(&warned, true) ? log_debug : log_refusal;
    char wanted[SIZE_TEXT], limit[SIZE_TEXT], used[SIZE_TEXT];
    say("%s of %s on device %d rejected: %s (limit %s, in use %s).", charge->call, size_text(wanted, size),
        charge->device, why, size_text(limit, rejected->limit), size_text(used, rejected->used));
    headroom_say_holdings(charge->device);
}

void headroom_say_refusal(const struct charge *charge, uint64_t size) {
    void (*say)(const char *, ...) = atomic_exchange(&warned, true) ? log_debug : log_refusal;
    char wanted[SIZE_TEXT];
    say("%s of %s on device %d was granted, and the driver refuses it.", charge->call,
        size_text(wanted, size), charge->device);
}

/* Fixed memory beyond the slot's: the scheduler answers at once, for nobody could make room by waiting. */
static CUresult headroom_ask_fixed(const struct charge *charge, uint64_t size) {
    struct channel_answer answer;
    uint32_t device = (uint32_t)charge->device;
    if (charge->movable || account_take_fixed(device, size)) return CUDA_SUCCESS;
    if (channel_allocate(device, size, charge->call, CONVGPU_ALLOCATE_FIXED, &answer) != CHANNEL_ANSWERED)
        return CUDA_ERROR_OUT_OF_MEMORY; /* the channel has said why */
    if (answer.kind == CONVGPU_ACCEPTED) return CUDA_SUCCESS;
    headroom_say_rejection(charge, size,
                           "it cannot leave the device while the container is suspended, and there is no "
                           "room for more of that kind: raise the option `fixed`",
                           &answer.rejected);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult headroom_fix(const char *call, int device, uint64_t size) {
    return headroom_ask_fixed(&(struct charge){.call = call, .device = device}, size);
}

/* Before an allocation waits or is refused, what this process has cached comes back, as the driver itself
 * does it before an allocation fails. */
static CUresult headroom_ask(struct charge *charge, uint64_t size, bool refused) {
    struct channel_answer answer = {.kind = CONVGPU_ACCEPTED};
    uint32_t device = (uint32_t)charge->device, flags = refused ? CONVGPU_ALLOCATE_REFUSED : 0;
    bool traced = false, taken = size == 0 || (!refused && account_take(device, size, &traced));
    for (int trim = 0; !taken && !refused && trim <= 1; trim++) {
        registry_reclaim(charge->device, trim);
        taken = account_take(device, size, &traced);
    }
    if (!taken && channel_allocate(device, size, charge->call, flags, &answer) != CHANNEL_ANSWERED)
        return CUDA_ERROR_OUT_OF_MEMORY; /* the channel has said why */
    if (answer.kind == CONVGPU_REJECTED) {
        headroom_say_rejection(charge, size, headroom_why(charge, size, &answer.rejected), &answer.rejected);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (traced) headroom_report(charge, size);
    charge->settling = taken ? 0 : answer.accepted.settling;
    charge->size += size;
    return CUDA_SUCCESS;
}

CUresult headroom_add(struct charge *charge, uint64_t size, bool refused) {
    CUresult result = headroom_ask_fixed(charge, size);
    if (result != CUDA_SUCCESS) return result;
    result = headroom_ask(charge, size, refused);
    if (result != CUDA_SUCCESS && !charge->movable) account_give_fixed((uint32_t)charge->device, size);
    return result;
}

void headroom_give_movable(int device, uint64_t size) {
    if (account_give((uint32_t)device, size)) channel_freed((uint32_t)device);
}

void headroom_give(int device, uint64_t size) {
    account_give_fixed((uint32_t)device, size);
    headroom_give_movable(device, size);
}

void headroom_give_charged(const struct charge *charge, uint64_t size) {
    if (charge->movable)
        headroom_give_movable(charge->device, size);
    else
        headroom_give(charge->device, size);
}

static void headroom_reset(void) {
    warned = false;
}
RESET_IN_CHILD(headroom_reset);
