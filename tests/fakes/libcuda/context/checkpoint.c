/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's checkpoint of another process: its calls wait, its memory leaves the device and comes back.
 * Contents stay where they are, for they are the host's anyway.
 */
#include "libcuda/context/checkpoint_api.h"

#include <time.h>

#include "libcuda/driver.h"
#include "libcuda/work/work.h"
#include "simulated/exports.h"

#define RUNNING      0
#define LOCKED       1
#define CHECKPOINTED 2
#define LOOK         200000 /* ns */
#define GIB          ((double)(UINT64_C(1) << 30))

static void sleep_ns(uint64_t ns) {
    struct timespec wait = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    nanosleep(&wait, NULL);
    pthread_setcancelstate(before, &before);
}

bool driver_is_stopped(void) {
    return atomic_load(&driver.state.shared->slot[driver.state.slot].checkpoint) != RUNNING;
}

void driver_wait_while_stopped(void) {
    while (driver_is_stopped()) sleep_ns(LOOK);
}

/* The process's part of the shared state, or NULL. */
static struct shared_slot *enter(int pid, CUresult *result) {
    *result = driver_enter();
    if (*result != CUDA_SUCCESS) return NULL;
    driver_leave(CUDA_SUCCESS);
    uint32_t slot = state_slot_of(&driver.state, pid);
    if (slot != SIMULATED_NO_SLOT) return &driver.state.shared->slot[slot];
    *result = CUDA_ERROR_INVALID_VALUE;
    return NULL;
}

CUresult cuCheckpointProcessGetState(int pid, int *state) {
    CUresult result;
    const struct shared_slot *slot = enter(pid, &result);
    if (slot == NULL) return result;
    if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
    *state = (int)atomic_load(&slot->checkpoint);
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    CUresult result;
    if (enter(pid, &result) == NULL) return result;
    if (thread == NULL) return CUDA_ERROR_INVALID_VALUE;
    *thread = pid; /* the first thread of the process does */
    return CUDA_SUCCESS;
}

/* The process goes on to the next state, if it is in the one before. */
static CUresult pass(struct shared_slot *slot, uint32_t from, uint32_t to) {
    return atomic_compare_exchange_strong(&slot->checkpoint, &from, to) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *arguments) {
    driver_step(__func__);
    CUresult result;
    struct shared_slot *slot = enter(pid, &result);
    if (slot == NULL) return result;
    result = pass(slot, RUNNING, LOCKED);
    uint64_t limit = arguments == NULL ? 0 : (uint64_t)arguments->timeout_ms * 1000000;
    uint64_t deadline = limit == 0 ? UINT64_MAX : monotonic_now() + limit;
    while (result == CUDA_SUCCESS && atomic_load(&slot->busy_until) > monotonic_now()) {
        if (monotonic_now() >= deadline) {
            pass(slot, LOCKED, RUNNING);
            return CUDA_ERROR_NOT_READY;
        }
        sleep_ns(LOOK);
    }
    return result;
}

/* Bytes that were moved take their time. */
static void take_time(uint64_t bytes) {
    sleep_ns(
        (uint64_t)((double)driver.state.configuration.checkpoint_us_per_gib * 1000 * (double)bytes / GIB));
}

CUresult cuCheckpointProcessCheckpoint(int pid, void *arguments) {
    (void)arguments;
    driver_step(__func__);
    CUresult result;
    struct shared_slot *slot = enter(pid, &result);
    if (slot == NULL) return result;
    if (atomic_load(&slot->checkpoint) != LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
    /* Drivers before 610 cannot, of memory that other processes may have. */
    uint32_t number = (uint32_t)(slot - driver.state.shared->slot);
    if (exports_held(&driver.state, number)) return CUDA_ERROR_NOT_SUPPORTED;
    take_time(state_save(&driver.state, slot));
    return pass(slot, LOCKED, CHECKPOINTED);
}

CUresult cuCheckpointProcessRestore(int pid, void *arguments) {
    (void)arguments;
    driver_step(__func__);
    CUresult result;
    struct shared_slot *slot = enter(pid, &result);
    if (slot == NULL) return result;
    if (atomic_load(&slot->checkpoint) != CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
    uint64_t bytes;
    if (!state_restore(&driver.state, slot, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    take_time(bytes / 3); /* as on the H200: 1.4 s back after 4.3 s out */
    return pass(slot, CHECKPOINTED, LOCKED);
}

CUresult cuCheckpointProcessUnlock(int pid, void *arguments) {
    (void)arguments;
    driver_step(__func__);
    CUresult result;
    struct shared_slot *slot = enter(pid, &result);
    return slot == NULL ? result : pass(slot, LOCKED, RUNNING);
}
