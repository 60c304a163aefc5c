/* SPDX-License-Identifier: Apache-2.0
 *
 * A request as the scheduler reads it, and what its answer is. Pure.
 */
#ifndef CONVGPU_REQUESTS_FRAME_H
#define CONVGPU_REQUESTS_FRAME_H

#include "requests/requests.h"

#include <convgpu/protocol.h>
#include <stdint.h>

struct request_frame {
    struct convgpu_header header; /* its size is that of the frame */
    union {
        struct convgpu_allocate allocate;
        struct convgpu_context context;
        struct convgpu_query query;
        struct convgpu_freed freed;
        struct convgpu_exported exported;
    };
};

/* Fills the frame of a request about the device in this row of WELCOME. */
void request_frame_fill(struct request_frame *frame, const struct request *request, uint32_t row);

/* Which kind of request a frame of this kind answers, or 0. */
int request_frame_answered(uint16_t kind);

#endif
