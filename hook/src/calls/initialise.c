/* SPDX-License-Identifier: Apache-2.0
 *
 * cuInit. When the scheduler chose the container's GPUs, the driver is to show those and no other: by
 * CUDA_VISIBLE_DEVICES, which it reads once, in the first cuInit that succeeds, and which it honours in all
 * of its calls (ordinals, peers, locations of memory). The variable stands in the environment for that call
 * only. So the program's own choice, and what its children inherit, stay as they were: a child by exec is a
 * process of its own, which asks the scheduler itself, and the container may have other GPUs by then.
 */
#include "base/fork_reset.h"
#include "base/log.h"
#include "base/no_cancel.h"
#include "scheduler/account.h"
#include "tables/driver.h"
#include "visibility/environment.h"
#include "visibility/visible_list.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char name[] = "CUDA_VISIBLE_DEVICES";
enum { NAME_LENGTH = sizeof name - 1, CUDA_ERROR_NO_DEVICE = 100 };

static pthread_mutex_t initialising = PTHREAD_MUTEX_INITIALIZER; /* held across the driver's cuInit */
static _Atomic bool initialised;                                 /* the driver has read the variable */
static _Atomic bool warned;
static struct visible_list list; /* guarded by `initialising`, as `entry` is */
static char entry[sizeof name + VISIBLE_LIST_SIZE];

static void say_unknown(const char *asked) {
    int length = (int)strcspn(list.unknown, ",");
    bool meant = strncmp(list.unknown, "GPU-", 4) == 0 || (*list.unknown >= '0' && *list.unknown <= '9');
    if (!meant || atomic_exchange(&warned, true)) return; /* -1 and the like: hidden on purpose */
    log_refusal("%s=%.80s: %.*s is none of this container's GPUs (numbers count those alone). "
                "Name GPUs by the volume's option `gpus`.",
                name, asked, length < 48 ? length : 48, list.unknown);
}

static void say_absent(void) {
    if (atomic_exchange(&warned, true)) return;
    log_refusal("not all of this container's GPUs (%.240s) are in it: start it with `--gpus all`, or "
                "name its GPUs by the volume's option `gpus`.",
                list.text);
}

static void check(CUresult result) {
    int count = 0;
    if (result == CUDA_SUCCESS && DRIVER(cuDeviceGetCount, &count) != CUDA_SUCCESS) return;
    bool absent = result == CUDA_SUCCESS || result == CUDA_ERROR_NO_DEVICE;
    if (absent && count < (int)list.count) say_absent();
}

/* `initialising` is held. */
static CUresult initialise(const struct account_chosen *chosen) {
    const char *asked = getenv(name);
    if (!visible_list_make(asked, chosen, &list)) return DRIVER(cuInit, 0);
    if (list.unknown) say_unknown(asked);
    snprintf(entry, sizeof entry, "%s=%s", name, list.text);
    if (!environment_enter(entry, NAME_LENGTH)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER(cuInit, 0);
    environment_leave();
    check(result);
    return result;
}

/* Fails closed: without a scheduler CUDA does not start (the entry gate). */
CUresult hooked_cuInit(unsigned flags) {
    struct account_chosen chosen;
    if (initialised || flags != 0 || !account_chosen(&chosen)) return DRIVER(cuInit, flags);
    int cancellation = no_cancel_begin();
    pthread_mutex_lock(&initialising);
    CUresult result = initialised ? DRIVER(cuInit, flags) : initialise(&chosen);
    if (result == CUDA_SUCCESS) initialised = true;
    pthread_mutex_unlock(&initialising);
    no_cancel_end(cancellation);
    return result;
}

static void initialise_reset(void) {
    initialising = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    initialised = false;
}
RESET_IN_CHILD(initialise_reset);
