/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that stops this process, moves its memory out and in, and lets it go on, as the scheduler orders
 * ("Memory that can leave" in docs/protocol.md). It starts with the first WELCOME whose page says ELASTIC.
 *
 * A stop: the gate closes; what is inside comes out, captures end; then everything that was submitted is
 * waited for, on a thread of its own. What did not end before the deadline makes the process busy, and the
 * gate opens at once. A step lets some submissions pass, because another process waits for them, and drains
 * again.
 */
#include "backing/backing.h"
#include "backing/cache.h"
#include "backing/ranges.h"
#include "base/background_thread.h"
#include "base/fork_reset.h"
#include "base/log.h"
#include "gate/captures.h"
#include "gate/drain.h"
#include "gate/gate.h"
#include "gate/queue.h"
#include "residency/carrier.h"
#include "residency/idleness.h"
#include "residency/transfers.h"
#include "scheduler/account.h"
#include "scheduler/channel.h"
#include "scheduler/orders.h"
#include "tables/registry.h"

#include <convgpu/page.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 50, POLL_MS = 1, ANSWER_MS = 100, KEEP_MS = 1000, STEP_MS = 50 };
enum { FOR_EVER = -1 };

static bool started; /* written under the session's lock */

/* The mover's thread alone. */
static uint64_t epoch;          /* of the last STOP or GO */
static uint32_t deadline;       /* of the last STOP, in ms */
static bool drained, announced; /* the process is stopped; the scheduler knows that somebody waits */
static bool go_is_due;          /* GO came before everything was back */
static uint32_t quieting;       /* number of the drain that freed ranges wait for; 0: none */

static uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int device_of_row(uint32_t row) {
    for (uint32_t device = 0; device < account_devices(); device++)
        if (account_row(device) == (int)row) return (int)device;
    return -1;
}

/* ---- what is told ---------------------------------------------------------------------------------------
 */

/* Where the memory of a device is. Cached ranges leave when the process is stopped. */
static void fill_row(uint32_t device, struct convgpu_state_row *row) {
    uint64_t backed = 0, pinned = 0, out = 0;
    ranges_lock();
    for (struct range *range = ranges_after(0); range; range = ranges_after(range->address)) {
        if (range->device != (int)device) continue;
        backed += range->size;
        out += range_out_bytes(range);
        if (range->fixed) pinned += range->size;
    }
    ranges_unlock();
    memcpy(row->device, account_uuid(device), sizeof row->device);
    row->movable = backed - pinned - out;
    row->out = out;
    row->fixed = account_fixed(device);
}

static void tell_state(void) {
    struct {
        struct convgpu_state head;
        struct convgpu_state_row rows[CONVGPU_MAX_DEVICES];
    } body = {.head = {.epoch = epoch, .open = !drained}};
    for (uint32_t device = 0; device < account_devices(); device++)
        if (account_row(device) >= 0) fill_row(device, &body.rows[body.head.row_count++]);
    (void)channel_tell(CONVGPU_STATE, &body,
                       (uint32_t)(sizeof body.head + body.head.row_count * sizeof body.rows[0]));
}

static void tell_welcome(void) {
    transfers_settle();
    idleness_watch(false, nanoseconds());
    struct convgpu_able able = {.mover = CONVGPU_MOVER_VMM,
                                .flags = CONVGPU_ABLE_CAPTURES | CONVGPU_ABLE_IDLE |
                                         (gate_has_membarrier() ? CONVGPU_ABLE_MEMBARRIER : 0)};
    (void)channel_tell(CONVGPU_ABLE, &able, sizeof able);
    if (epoch > 0) tell_state();
}

static void tell_stopped(uint32_t outcome, uint64_t begin) {
    struct convgpu_stopped stopped = {
        .epoch = epoch, .outcome = outcome, .waiting = gate_waiting(), .nanoseconds = nanoseconds() - begin};
    announced = stopped.waiting > 0;
    (void)channel_tell(CONVGPU_STOPPED, &stopped, sizeof stopped);
}

static void tell_report(const struct transfer_report *report) {
    struct convgpu_restored body = {
        .epoch = epoch, .device = report->row, .refused = (uint32_t)report->refused, .size = report->size};
    _Static_assert(sizeof body == sizeof(struct convgpu_evicted), "the same but for `refused`");
    if (!report->in) body.refused = report->ended; /* EVICTED.ended */
    (void)channel_tell(report->in ? CONVGPU_RESTORED : CONVGPU_EVICTED, &body, sizeof body);
    if (report->fewer) tell_state(); /* or it would ask for ever */
}

/* Once for each stop. */
static void tell_who_waits(void) {
    struct convgpu_run run = {.epoch = epoch};
    if (!drained || announced || gate_waiting() == 0) return;
    announced = true;
    (void)channel_tell(CONVGPU_RUN, &run, sizeof run);
}

/* ---- stop, step, go -------------------------------------------------------------------------------------
 */

static bool is_all_back(void) {
    bool out = false;
    ranges_lock();
    for (struct range *range = ranges_after(0); range && !out; range = ranges_after(range->address))
        out = range->state == RANGE_LIVE && (range->out > 0 || range->moving > 0);
    ranges_unlock();
    return !out;
}

/* Waits until nobody is inside and no capture is on its way. False at the end of the time. */
static bool wait_for_silence(uint64_t end) {
    while (captures_count() > 0 || gate_is_entered()) {
        if (nanoseconds() >= end) return false;
        queue_wait(queue_changes(), POLL_MS);
    }
    return true;
}

/* Waits for the devices. False at the end of the time; then the wait goes on by itself and is of no use. */
static bool wait_for_devices(uint64_t end) {
    if (!captures_hold()) return false;
    uint32_t number = drain_ask();
    bool over = false;
    while (number > 0 && !over && nanoseconds() < end) {
        uint32_t seen = queue_changes();
        over = drain_is_over(number);
        if (!over) queue_wait(seen, TICK_MS);
    }
    if (!over) drain_give_up();
    captures_release();
    return over && drain_was_made(number);
}

/* With the gate closed: whether the process stands still by then. Then what it keeps for later goes. */
static bool drain(uint64_t end) {
    drained = wait_for_silence(end) && wait_for_devices(end);
    if (!drained) return false;
    if (backing_ask()) backing_quieten();
    for (uint32_t device = 0; device < account_devices(); device++) registry_reclaim((int)device, true);
    return true;
}

static void finish_drain(uint64_t begin, uint64_t end) {
    bool still = drain(end);
    uint32_t outcome = still                  ? CONVGPU_OUTCOME_DRAINED
                       : captures_count() > 0 ? CONVGPU_OUTCOME_CAPTURING
                                              : CONVGPU_OUTCOME_BUSY;
    if (!still && is_all_back()) gate_open();
    if (still) tell_state();
    tell_stopped(outcome, begin);
    log_debug("stopped: outcome %u after %llu us.", outcome,
              (unsigned long long)(nanoseconds() - begin) / 1000);
}

static void stop(const struct order *order) {
    uint64_t begin = nanoseconds();
    deadline = order->deadline;
    go_is_due = false;
    announced = false;
    gate_close();
    finish_drain(begin, begin + (uint64_t)order->deadline * 1000000);
}

static void step(const struct order *order) {
    uint64_t begin = nanoseconds();
    if (gate_is_open() || transfers_are_active() || !is_all_back()) return;
    drained = false;
    announced = false;
    gate_permit((uint32_t)order->count);
    while (gate_permits() > 0 && nanoseconds() - begin < STEP_MS * UINT64_C(1000000))
        queue_wait(queue_changes(), POLL_MS);
    gate_permit(0);
    finish_drain(begin, begin + (uint64_t)deadline * 1000000);
}

/* The gate never opens before everything is back: a program that reads what is out would die. */
static void go(void) {
    if (!carrier_is_there()) transfers_cancel_out();
    go_is_due = !is_all_back();
    if (go_is_due) {
        tell_state();
        return;
    }
    drained = false;
    gate_open();
}

/* What is out comes back whenever the gate is closed, also when a stop was not drained. An order that cannot
 * be carried out is one of a scheduler that does not know how this process stands. */
static void move(const struct order *order) {
    int device = device_of_row(order->device);
    bool in = order->kind == ORDER_RESTORE;
    if (device >= 0 && (in ? !gate_is_open() : drained))
        transfers_begin(in, device, order->device, order->count);
    else
        tell_state();
}

/* ---- the thread -----------------------------------------------------------------------------------------
 */

static void carry_out(const struct order *order) {
    bool old = order->epoch < epoch;
    if (order->kind == ORDER_WELCOME) {
        tell_welcome();
        return;
    }
    if (order->kind == ORDER_WATCH) {
        idleness_watch(order->count != 0, nanoseconds());
        return;
    }
    if (old) return;
    epoch = order->epoch;
    switch (order->kind) {
    case ORDER_STOP:
        stop(order);
        break;
    case ORDER_STEP:
        step(order);
        break;
    case ORDER_GO:
        go();
        break;
    default:
        move(order);
    }
}

/* What freed ranges wait for, while a capture is on its way: a synchronisation after it. */
static void quieten(void) {
    if (quieting > 0 && drain_is_over(quieting)) {
        captures_release();
        if (drain_was_made(quieting)) (void)backing_quieten();
        quieting = 0;
    }
    if (quieting > 0 || !captures_hold()) return;
    if (backing_ask()) quieting = drain_ask();
    if (quieting == 0) captures_release();
}

/* The cache while another process's allocation waits, and what was not used for long. */
static void age_cache(void) {
    if (cache_is_empty()) return;
    for (uint32_t device = 0; device < account_devices(); device++)
        backing_empty_cache((int)device, account_wanted(device) ? 0 : KEEP_MS);
}

/* Does what is due without an order. Returns how long it can wait, in ms. */
static int tend(void) {
    struct transfer_report report;
    transfers_tend_carrier();
    tell_who_waits();
    age_cache();
    bool freed = backing_sweep(transfers_forget);
    if (freed) quieten();
    bool watches = idleness_tend(nanoseconds());
    if (!transfers_are_active() || !carrier_is_there())
        return freed || watches || !cache_is_empty() ? TICK_MS : FOR_EVER;
    if (transfers_step(ANSWER_MS, &report)) tell_report(&report);
    if (go_is_due && !transfers_are_active()) go();
    return 0;
}

static void *mover_serve(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "convgpu-mover");
    for (;;) {
        struct order order;
        uint32_t seen = queue_changes();
        int patience = tend();
        if (patience == 0) continue;
        if (queue_take(&order, !transfers_are_active())) { /* else the reports of two orders would be mixed */
            carry_out(&order);
            continue;
        }
        queue_set_idle(patience == FOR_EVER);
        queue_wait(seen, cache_is_empty() ? patience : TICK_MS);
        queue_set_idle(false);
    }
    return NULL;
}

static bool mover_welcomed(uint32_t page_flags) {
    bool elastic = page_flags & CONVGPU_PAGE_ELASTIC;
    gate_decide(elastic);
    if (!elastic || !gate_takes_part()) return true;
    if (!started) started = background_thread(mover_serve);
    if (started) queue_begin_anew(&(struct order){.kind = ORDER_WELCOME});
    return started;
}

static bool mover_ordered(enum convgpu_kind kind, const void *body, int descriptor) {
    struct order order;
    const struct convgpu_stop *stops = body;
    const struct convgpu_step *steps = body;
    const struct convgpu_evict *moves = body;
    if (kind == CONVGPU_CARRIER && descriptor >= 0 && started) {
        carrier_adopt(descriptor);
        return true;
    }
    if (descriptor >= 0) close(descriptor);
    switch (kind) {
    case CONVGPU_STOP:
        order = (struct order){.kind = ORDER_STOP, .epoch = stops->epoch, .deadline = stops->deadline};
        break;
    case CONVGPU_STEP:
        order = (struct order){.kind = ORDER_STEP, .epoch = steps->epoch, .count = steps->count};
        break;
    case CONVGPU_EVICT:
    case CONVGPU_RESTORE:
        order = (struct order){.kind = kind == CONVGPU_EVICT ? ORDER_EVICT : ORDER_RESTORE,
                               .epoch = moves->epoch,
                               .device = moves->device,
                               .count = moves->size};
        break;
    case CONVGPU_GO:
        order = (struct order){.kind = ORDER_GO, .epoch = ((const struct convgpu_go *)body)->epoch};
        break;
    case CONVGPU_WATCH:
        order = (struct order){.kind = ORDER_WATCH, .count = ((const struct convgpu_watch *)body)->on};
        break;
    default:
        return false;
    }
    return started && queue_add(&order);
}

static void mover_reset(void) {
    started = drained = announced = go_is_due = false;
    epoch = 0;
    quieting = 0;
}
RESET_IN_CHILD(mover_reset);
REGISTER_ORDERS(mover, .welcomed = mover_welcomed, .ordered = mover_ordered);
