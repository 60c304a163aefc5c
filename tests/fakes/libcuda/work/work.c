/* SPDX-License-Identifier: Apache-2.0 */
#include "libcuda/work/work.h"

#include <stdlib.h>
#include <time.h>

#include "libcuda/context/event.h"
#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"
#include "libcuda/work/start.h"

#define LATER   UINT64_MAX /* an end that is not known yet */
#define LOOK    200000     /* ns after which somebody who waits looks at such work again */
#define LONGEST 5000000    /* ns */

static struct work *first, **last_link = &first;
static uint64_t last_sequence;

uint64_t monotonic_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool waits_for(const struct lane *later, const struct work *earlier) {
    if (later->context != earlier->lane.context) return false;
    if (later->stream == earlier->lane.stream) return true;
    bool legacy = later->stream == NULL || earlier->lane.stream == NULL;
    return legacy && later->blocking && earlier->lane.blocking;
}

static bool depends(const struct work *later, const struct work *earlier) {
    return later->after == earlier->sequence || waits_for(&later->lane, earlier);
}

static bool runnable(const struct work *work) {
    for (const struct work *earlier = first; earlier != work; earlier = earlier->next) {
        if (depends(work, earlier)) return false;
    }
    return true;
}

/* For a checkpoint: when all is done, as far as anybody can say. */
static void publish(void) {
    uint64_t until = first == NULL ? 0 : monotonic_now();
    for (const struct work *work = first; work != NULL && until != LATER; work = work->next) {
        if (work->start == 0) {
            until = work_has_own_end(&work->operation) ? LATER : until + work->operation.lasts;
        } else if (work->end > until) {
            until = work->end;
        }
    }
    atomic_store(&driver.state.shared->slot[driver.state.slot].busy_until, until);
}

void work_drop(const struct context *context) {
    last_link = &first;
    while (*last_link != NULL) {
        struct work *work = *last_link;
        if (work->lane.context == context) {
            *last_link = work->next;
            if (work->event != NULL) work->event->ended = monotonic_now();
            work_free(work);
        } else {
            last_link = &work->next;
        }
    }
    publish();
}

/* As after Xid 31. */
static void fail(struct context *context) {
    context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
    work_drop(context);
}

/* Takes the work off the list; what depends on it can begin when it ended. */
static void end(struct work **link) {
    struct work *work = *link;
    *link = work->next;
    if (last_link == &work->next) last_link = link;
    if (work->event != NULL) work->event->ended = work->end;
    for (struct work *later = *link; later != NULL; later = later->next) {
        if (depends(later, work) && later->ready < work->end) later->ready = work->end;
    }
    work_free(work);
}

/* Begins the work or ends it if it is time. Returns false if its context has failed. */
static bool step(struct work **link, uint64_t now, bool *ended) {
    struct work *work = *link;
    *ended = false;
    if (work->start == 0 && !runnable(work)) return true;
    if (work->start == 0 && !work_start(work)) return false;
    if (!work_has_ended(work, now)) return true;
    if (!operation_do(&work->operation)) return false;
    *ended = true;
    end(link);
    return true;
}

void work_advance(void) {
    if (first == NULL) return;
    uint64_t now = monotonic_now();
    bool ended;
    for (struct work **link = &first; *link != NULL;) {
        struct context *context = (*link)->lane.context;
        if (!step(link, now, &ended)) {
            fail(context);
            link = &first;
        } else if (!ended) {
            link = &(*link)->next;
        }
    }
    publish();
}

uint64_t work_add(const struct lane *lane, const struct operation *operation, uint64_t after,
                  struct event *event) {
    struct work *work = calloc(1, sizeof *work);
    if (work == NULL) abort(); /* this is a test double */
    work->operation = *operation;
    work->lane = *lane;
    work->after = after;
    work->event = event;
    work->sequence = ++last_sequence;
    work->ready = monotonic_now();
    work_advance();
    *last_link = work;
    last_link = &work->next;
    work_advance();
    return last_sequence;
}

CUresult work_submit(const struct lane *lane, const struct operation *operation, uint64_t *sequence) {
    if (sequence != NULL) *sequence = 0;
    if (operation->kind != OPERATION_KERNEL && !operation_can(operation)) return CUDA_ERROR_INVALID_VALUE;
    if (lane->made != NULL && lane->made->capture != NULL) {
        return graph_add_captured(lane->made->capture->graph, operation);
    }
    uint64_t added = work_add(lane, operation, 0, NULL);
    if (sequence != NULL) *sequence = added;
    return lane->context->error;
}

bool work_is_done(uint64_t sequence) {
    work_advance();
    const struct work *work = first;
    while (work != NULL && work->sequence != sequence) work = work->next;
    return work == NULL;
}

/* The next time at which something that was begun ends, or now and a moment. */
static uint64_t next_end(uint64_t now) {
    uint64_t next = now + LONGEST;
    for (const struct work *work = first; work != NULL; work = work->next) {
        uint64_t end = work->start == 0 ? LATER : work->end == LATER ? now + LOOK : work->end;
        if (end < next) next = end;
    }
    return next;
}

/* Sleeps without the mutex. A card's driver waits in ioctl, which is no cancellation point. */
static void sleep_unlocked(void) {
    uint64_t now = monotonic_now(), next = next_end(now);
    struct timespec wait = {.tv_nsec = next > now ? (long)(next - now) : 0};
    int before;
    pthread_mutex_unlock(&driver.mutex);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    nanosleep(&wait, NULL);
    pthread_setcancelstate(before, &before);
    pthread_mutex_lock(&driver.mutex);
}

/* Whether there is unfinished work of the lane (or, with none, of the context) up to the number. */
static bool unfinished(const struct context *context, const struct lane *lane, uint64_t last) {
    work_advance();
    for (const struct work *work = first; work != NULL && work->sequence <= last; work = work->next) {
        if (lane == NULL ? work->lane.context == context : waits_for(lane, work)) return true;
    }
    return false;
}

bool work_pending(const struct lane *lane) {
    return unfinished(lane->context, lane, last_sequence);
}

CUresult work_wait(const struct lane *lane, uint64_t last) {
    uint64_t until = last < last_sequence ? last : last_sequence;
    while (unfinished(lane->context, lane, until)) sleep_unlocked();
    return lane->context->error;
}

CUresult work_wait_all(struct context *context) {
    uint64_t until = last_sequence;
    while (unfinished(context, NULL, until)) sleep_unlocked();
    return context->error;
}

CUresult work_wait_for(struct context *context, uint64_t sequence) {
    while (!work_is_done(sequence)) sleep_unlocked();
    return context->error;
}

void work_forget_event(const struct event *event) {
    for (struct work *work = first; work != NULL; work = work->next) {
        if (work->event == event) work->event = NULL;
    }
}

void work_forget_stream(const struct stream *stream) {
    static uint64_t last; /* an odd number, that no stream's address is */
    last += 2;
    for (struct work *work = first; work != NULL; work = work->next) {
        if (work->lane.made != stream) continue;
        work->lane.made = NULL;
        work->lane.stream = (const void *)(uintptr_t)(last - 1);
    }
}

void work_unmapping(uint64_t address, uint64_t size) {
    work_advance();
    for (struct work *work = first; work != NULL; work = work->next) {
        if (work->start == 0 || !operation_touches(&work->operation, address, size)) continue;
        fail(work->lane.context);
        work = first;
        if (work == NULL) return;
    }
}

CUresult work_enter(CUstream handle, bool per_thread, struct lane *lane) {
    *lane = (struct lane){.blocking = true};
    if (handle == NULL && per_thread) handle = CU_STREAM_PER_THREAD;
    CUresult result = driver_enter_stream(handle, &lane->context);
    if (result != CUDA_SUCCESS) return result;
    lane->made = stream_named(handle);
    lane->stream = lane->made;
    if (lane->made != NULL) lane->blocking = lane->made->blocking;
    return CUDA_SUCCESS;
}
