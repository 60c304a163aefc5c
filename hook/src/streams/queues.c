/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/queues.h"

#include "accounting/context_growth.h"
#include "base/fork_reset.h"
#include "code/sample.h"

#include <pthread.h>

/* No call takes it that gives memory back, but for the first of a thread in its default stream. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

CUresult queues_take(const char *call, queues_attempt *attempt, void *arguments, bool *made) {
    *made = false;
    pthread_mutex_lock(&making);
    struct sample before = sample_take();
    CUresult result = growth_charge_owed(before.device, call);
    if (result == CUDA_SUCCESS) {
        result = attempt(arguments);
        *made = result == CUDA_SUCCESS;
    }
    if (*made) result = sample_charge_fall(&before, call);
    pthread_mutex_unlock(&making);
    return result;
}

static void queues_reset(void) {
    making = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
RESET_IN_CHILD(queues_reset);
