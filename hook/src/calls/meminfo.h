/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONVGPU_QUERY_H
#define CONVGPU_QUERY_H

#include <stdint.h>

/* The container's limit on a device (a number of account.h), and what its processes use of it, which may be
 * more (a limit can be lowered). Exact for what this process uses; what others of the container use is at
 * most 10 ms old, or as old as the scheduler is away. */
struct query_figures {
    uint64_t limit, used;
};
struct query_figures query_figures(uint32_t device);

#endif
