/* SPDX-License-Identifier: Apache-2.0
 *
 * One piece of work, from its start to its end. driver.mutex held, everywhere.
 */
#ifndef SIMULATED_START_H
#define SIMULATED_START_H

#include "libcuda/work/work.h"

struct call_of_host;

struct work {
    struct operation operation;
    struct lane lane;
    struct work *next;
    uint64_t sequence;
    uint64_t after;            /* the number of other work that it waits for; 0: none */
    uint64_t ready;            /* ns: when all that it waits for had ended, as far as it has */
    uint64_t start;            /* ns; 0: it did not begin */
    uint64_t end;              /* ns; UINT64_MAX: not known */
    struct event *event;       /* that learns when it ended, or NULL */
    struct call_of_host *call; /* of the host, on its way */
};

/* Begins at work->ready, or when a copy engine is free. Returns false if it touches what is not there. */
bool work_start(struct work *work);

/* Whether only the work itself knows when it is over. */
bool work_has_own_end(const struct operation *operation);

bool work_has_ended(struct work *work, uint64_t now);

void work_free(struct work *work);

#endif
