/* SPDX-License-Identifier: Apache-2.0 */
#include "requests/frame.h"

#include <string.h>

/* Returns the size of the body. */
static size_t fill_body(struct request_frame *frame, const struct request *request, uint32_t row) {
    if (request->exported) {
        frame->exported = *request->exported;
        frame->exported.device = row;
        return sizeof frame->exported;
    }
    switch (request->kind) {
    case CONVGPU_ALLOCATE:
        frame->allocate =
            (struct convgpu_allocate){.device = row, .flags = request->flags, .size = request->size};
        strncpy(frame->allocate.call, request->call, sizeof frame->allocate.call - 1);
        return sizeof frame->allocate;
    case CONVGPU_CONTEXT:
        frame->context =
            (struct convgpu_context){.device = row, .charged = request->size, .used = request->used};
        return sizeof frame->context;
    case CONVGPU_QUERY:
        frame->query = (struct convgpu_query){.device = row};
        return sizeof frame->query;
    default:
        frame->freed = (struct convgpu_freed){.device = row};
        return sizeof frame->freed;
    }
}

void request_frame_fill(struct request_frame *frame, const struct request *request, uint32_t row) {
    size_t body = fill_body(frame, request, row);
    frame->header =
        (struct convgpu_header){.size = (uint32_t)(sizeof frame->header + body),
                                .version = CONVGPU_PROTOCOL_VERSION,
                                .kind = request->exported ? CONVGPU_EXPORTED : (uint16_t)request->kind,
                                .id = request->id};
}

int request_frame_answered(uint16_t kind) {
    switch (kind) {
    case CONVGPU_ACCEPTED:
    case CONVGPU_REJECTED:
        return CONVGPU_ALLOCATE;
    case CONVGPU_CONTEXT_SIZE:
        return CONVGPU_CONTEXT;
    case CONVGPU_USAGE:
        return CONVGPU_QUERY;
    default:
        return 0;
    }
}
