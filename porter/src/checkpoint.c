/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/driver.h"
#include "base/log.h"
#include "control.h"

/* CUprocessState. */
enum { RUNNING = 0, LOCKED = 1, CHECKPOINTED = 2 };
enum { PAUSE_MS = 100 }; /* between two tries to put a process back onto a device that is full */

/* CUcheckpointLockArgs: the process is drained, so that nothing is waited for that long. */
struct lock_arguments {
    unsigned timeout_ms, reserved;
    uint64_t more[7];
};

struct request {
    uint64_t session;
    int pid;
    bool restore;
};

static CUresult state_of(int pid, int *state) {
    return cu.checkpoint_state != NULL ? cu.checkpoint_state(pid, state) : CU_NOT_SUPPORTED;
}

static CUresult take(int pid, int state) {
    struct lock_arguments arguments = {.timeout_ms = 10000};
    CUresult result = state == RUNNING ? cu.checkpoint_lock(pid, &arguments) : CU_SUCCESS;
    if (result != CU_SUCCESS || state == CHECKPOINTED) return result;
    result = cu.checkpoint_take(pid, NULL);
    if (result != CU_SUCCESS) cu.checkpoint_unlock(pid, NULL);
    return result;
}

static CUresult put_back(int pid, int state) {
    CUresult result = CU_SUCCESS;
    if (state == CHECKPOINTED) {
        struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
        while ((result = cu.checkpoint_restore(pid, NULL)) == CU_OUT_OF_MEMORY) nanosleep(&pause, NULL);
    }
    return result == CU_SUCCESS && state != RUNNING ? cu.checkpoint_unlock(pid, NULL) : result;
}

static void *carry_out(void *argument) {
    struct request request = *(struct request *)argument;
    int state;
    free(argument);
    CUresult result = state_of(request.pid, &state);
    if (result == CU_SUCCESS)
        result = request.restore ? put_back(request.pid, state) : take(request.pid, state);
    if (result != CU_SUCCESS)
        log_line("pid %d: the driver's checkpoint %s: %s", request.pid,
                 request.restore ? "could not be put back" : "could not be taken", driver_error(result));
    control_checkpointed(request.session, request.restore, (uint32_t)result);
    return NULL;
}

void checkpoint_begin(uint64_t session, int pid, bool restore) {
    pthread_t thread;
    struct request *request = malloc(sizeof *request);
    int error = request != NULL ? 0 : ENOMEM;
    if (request != NULL) {
        *request = (struct request){session, pid, restore};
        error = pthread_create(&thread, NULL, carry_out, request);
    }
    if (error == 0) {
        pthread_detach(thread);
        return;
    }
    free(request);
    log_line("no thread for a checkpoint: %s", strerror(error));
    control_checkpointed(session, restore, CU_OUT_OF_MEMORY);
}

void checkpoint_adopt(uint64_t session, int pid) {
    int state = RUNNING;
    if (state_of(pid, &state) != CU_SUCCESS || state == RUNNING) return;
    if (state == CHECKPOINTED) control_checkpointed(session, false, 0);
    if (state == LOCKED) cu.checkpoint_unlock(pid, NULL);
}
