/* SPDX-License-Identifier: Apache-2.0 */
#include "requests/requests.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static struct request *requests;

/* The wake-up of an address that is gone does no harm. */
static void wake(_Atomic uint32_t *state) {
    syscall(SYS_futex, state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void requests_add(struct request *request) {
    pthread_mutex_lock(&listing);
    request->next = requests;
    requests = request;
    pthread_mutex_unlock(&listing);
}

struct request *requests_take(uint64_t id, int kind) {
    pthread_mutex_lock(&listing);
    struct request **link = &requests;
    while (*link && ((id && (*link)->id != id) || (kind && (int)(*link)->kind != kind)))
        link = &(*link)->next;
    struct request *found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&listing);
    return found;
}

struct request *requests_take_all(void) {
    pthread_mutex_lock(&listing);
    struct request *all = requests;
    requests = NULL;
    pthread_mutex_unlock(&listing);
    return all;
}

/* Its thread may return at once, so nothing of it is read after the state is set. */
void requests_finish(struct request *request, enum channel_outcome outcome) {
    _Atomic uint32_t *state = &request->state;
    request->outcome = outcome;
    atomic_store(state, REQUEST_DONE);
    wake(state);
}

void requests_finish_all(int kind, enum channel_outcome outcome) {
    for (struct request *request; (request = requests_take(0, kind));) requests_finish(request, outcome);
}

static struct request *take_interrupted(void) {
    pthread_mutex_lock(&listing);
    struct request **link = &requests;
    while (*link && !(*link)->is_interrupted) link = &(*link)->next;
    struct request *found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&listing);
    return found;
}

void requests_finish_interrupted(enum channel_outcome outcome) {
    for (struct request *request; (request = take_interrupted());) requests_finish(request, outcome);
}

/* On the list it is not finished, so its thread is there; under `listing` it stays on the list. */
void requests_explain(uint64_t id, const char *why) {
    uint32_t waits = REQUEST_WAITS;
    pthread_mutex_lock(&listing);
    struct request *request = requests;
    while (request &&
           (request->kind != CONVGPU_ALLOCATE || (id && request->id != id) || request->is_explained))
        request = request->next;
    if (request) {
        request->is_explained = true;
        strncpy(request->why, why, sizeof request->why - 1);
        if (atomic_compare_exchange_strong(&request->state, &waits, REQUEST_EXPLAINED)) wake(&request->state);
    }
    pthread_mutex_unlock(&listing);
}

void requests_in_child(void) {
    listing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    requests = NULL;
}
