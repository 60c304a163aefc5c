/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests of this process that the scheduler has not answered. Each lies on the stack of the thread that
 * waits for it, and is on one list until somebody takes it off to finish it: that is exactly one thread.
 *
 * Lock: `listing` (requests.c), never held across a call that blocks; the caller may hold the channel's
 * `sending`.
 */
#ifndef CONVGPU_REQUESTS_H
#define CONVGPU_REQUESTS_H

#include <convgpu/protocol.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How a request ended. */
enum channel_outcome {
    CHANNEL_ANSWERED, /* see the answer's kind */
    CHANNEL_AWAY,     /* the scheduler cannot be reached (ALLOCATE: and the program was interrupted) */
    CHANNEL_REFUSED,  /* the scheduler refuses this process, or the device has no row */
};

struct channel_answer {
    enum convgpu_kind kind;
    union {
        struct convgpu_accepted accepted;
        struct convgpu_rejected rejected;
        struct convgpu_context_size context_size;
        struct convgpu_usage usage;
        char body[sizeof(struct convgpu_usage)]; /* the largest */
    };
};

enum request_state { REQUEST_WAITS, REQUEST_DONE, REQUEST_EXPLAINED };

struct request {
    uint64_t id;
    enum convgpu_kind kind;
    uint32_t device;
    uint64_t size;                           /* ALLOCATE; CONTEXT: charged */
    uint64_t used;                           /* CONTEXT */
    const char *call;                        /* ALLOCATE */
    uint32_t flags;                          /* ALLOCATE: CONVGPU_ALLOCATE_* */
    const struct convgpu_exported *exported; /* QUERY: it is EXPORTED, which has the same answer; or NULL */
    struct channel_answer *answer;
    enum channel_outcome outcome;
    char why[CONVGPU_TEXT_SIZE]; /* its thread's while the state is REQUEST_EXPLAINED */
    bool is_explained;           /* guarded by `listing`: once is enough */
    bool is_interrupted;         /* guarded by the channel's `sending`: its program asked for its end */
    _Atomic uint32_t
        state; /* the futex; nothing of the request is touched after REQUEST_DONE but by its thread */
    struct request *next;
};

void requests_add(struct request *request);

/* Takes the first request off the list that has this id (0: any) and is of this kind (0: any); NULL without.
 */
struct request *requests_take(uint64_t id, int kind);

/* Takes all of them, linked by `next`. */
struct request *requests_take_all(void);

/* Ends a request that is off the list, and wakes its thread. */
void requests_finish(struct request *request, enum channel_outcome outcome);

/* Takes and ends all of this kind (0: any). */
void requests_finish_all(int kind, enum channel_outcome outcome);

/* Takes and ends those that were interrupted. The caller holds the channel's `sending`. */
void requests_finish_interrupted(enum channel_outcome outcome);

/* Gives the thread of an allocation (id 0: of any that has none yet) one line about its pause, and wakes it.
 */
void requests_explain(uint64_t id, const char *why);

/* In the child of a fork: there are none. */
void requests_in_child(void);

#endif
