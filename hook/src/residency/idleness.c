/* SPDX-License-Identifier: Apache-2.0
 *
 * Each look takes the marks that threads leave at the gate. After some looks without any, the devices are
 * waited for, on the thread of drains, because a kernel may last. While that wait lasts no capture can begin,
 * as with every synchronisation of ours.
 */
#include "residency/idleness.h"

#include "base/fork_reset.h"
#include "gate/captures.h"
#include "gate/drain.h"
#include "gate/gate.h"
#include "scheduler/channel.h"

enum { IDLE_MS = 100 };

static bool watched, told;  /* the scheduler wants to know; it knows that the process is idle */
static uint64_t worked;     /* when the process was last seen to work, ns */
static uint32_t waited_for; /* number of the wait for the devices; 0: none */
static bool submitted;      /* since that wait began */

static void tell(bool idle, uint64_t now) {
    struct convgpu_idle body = {.idle = idle, .nanoseconds = now - worked};
    told = idle;
    (void)channel_tell(CONVGPU_IDLE, &body, sizeof body);
}

void idleness_watch(bool on, uint64_t now) {
    if (on == watched) return;
    watched = on;
    told = false;
    worked = now;
}

static void begin_wait(void) {
    if (!captures_hold()) return;
    submitted = false;
    waited_for = drain_ask();
    if (waited_for == 0) captures_release();
}

/* Whether the wait ended by itself, and nothing was submitted since it began. */
static bool wait_ended(bool used) {
    submitted |= used;
    if (waited_for == 0 || !drain_is_over(waited_for)) return false;
    captures_release();
    bool clean = drain_was_made(waited_for) && !submitted;
    waited_for = 0;
    return clean;
}

bool idleness_tend(uint64_t now) {
    if (!watched && waited_for == 0) return false;
    bool stopped = !gate_is_open();
    bool used = gate_take_used() || stopped || captures_count() > 0;
    bool quiet = wait_ended(used);
    if (stopped) told = false; /* the scheduler knows, and counts anew from GO on */
    if (used && told) tell(false, now);
    if (quiet && watched && !told) tell(true, now);
    if (used || waited_for != 0) worked = now;
    if (watched && !told && waited_for == 0 && now - worked >= IDLE_MS * UINT64_C(1000000)) begin_wait();
    return true;
}

static void idleness_reset(void) {
    watched = told = submitted = false;
    waited_for = 0;
}
RESET_IN_CHILD(idleness_reset);
