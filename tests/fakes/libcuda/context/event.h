/* SPDX-License-Identifier: Apache-2.0
 *
 * Events, as work sees them. driver.mutex held, everywhere.
 */
#ifndef SIMULATED_EVENT_H
#define SIMULATED_EVENT_H

#include "libcuda/driver.h"
#include "libcuda/handles.h"

struct capture;

struct event {
    struct handle handle;
    struct context *context;
    const void *stream;
    uint64_t order;    /* of the last free before it was recorded; 0: none, or it was not recorded */
    uint64_t sequence; /* of the work that it was recorded as; 0: none */
    uint64_t ended;    /* ns: when that was done; 0: it is not */
    const struct capture *captured; /* that it was last recorded in, or NULL; may be gone */
};

#endif
