/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions to the scheduler by a process that may have no session: nvidia-smi makes no CUDA call, takes no
 * memory and is charged nothing. One connection for each question, made and closed by the asking thread.
 */
#ifndef CONVGPU_OBSERVER_H
#define CONVGPU_OBSERVER_H

#include <convgpu/protocol.h>
#include <stdbool.h>

/* What a container uses of a device; observer_release() frees it. */
struct observation {
    struct convgpu_observed figures; /* process_count counts the rows of `process` */
    struct convgpu_process process[];
};

/* NULL when the scheduler refuses, or does not answer within a second: said in one line on stderr (once, and
 * only if `aloud`). */
struct observation *observer_ask(const uint8_t *uuid, bool aloud);
void observer_release(struct observation *observation);

#endif
