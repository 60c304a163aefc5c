/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's connection to the scheduler: one socket, one service thread that reads answers and connects
 * again, and any number of threads that wait for an answer. Devices are numbers of account.h.
 */
#ifndef CONVGPU_CHANNEL_H
#define CONVGPU_CHANNEL_H

#include <convgpu/protocol.h>
#include <stdbool.h>
#include <stdint.h>

/* How a request ended. */
enum channel_outcome {
    CHANNEL_ANSWERED, /* see the answer's kind */
    CHANNEL_AWAY,     /* the scheduler cannot be reached (QUERY and CONTEXT only: ALLOCATE waits) */
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

/* Connects for the first time and starts the service thread. `path`, `program` and `memory` are copied. False
 * after one line on stderr (only the first time) when no scheduler answers or it refuses. Not thread-safe:
 * the session calls it under its lock. */
bool channel_open(const char *path, const char *program, const char *memory);

/* Pauses the calling thread until the scheduler answers, however long that takes and whatever signal handlers
 * run meanwhile. `call` is the name of the CUDA call. `refused`: the driver refused what was accepted. */
enum channel_outcome channel_allocate(uint32_t device, uint64_t size, const char *call, bool refused,
                                      struct channel_answer *answer);
enum channel_outcome channel_query(uint32_t device, struct channel_answer *answer);
enum channel_outcome channel_context(uint32_t device, uint64_t charged, uint64_t used,
                                     struct channel_answer *answer);

/* Tells of a free; no answer. Lost silently when away: HELLO will tell. */
void channel_freed(uint32_t device);

/* fork(): before it, no descriptor may be in the making; in the child, everything is forgotten and closed,
 * for the scheduler must see the end of the parent's connection when the parent ends. */
void channel_before_fork(void);
void channel_in_parent(void);
void channel_in_child(void);

#endif
