/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of copies. One goes to a stream that is not the legacy one, and into no graph: the driver answers
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture goes on. A copy of nothing, or from or to nothing,
 * is CUDA_ERROR_INVALID_VALUE. Nothing is copied before the whole batch was found to be right.
 */
#include <stdlib.h>

#include "libcuda/graph/graph.h"
#include "libcuda/memory/array.h"
#include "libcuda/memory/pool.h"
#include "libcuda/work/contents.h"
#include "libcuda/work/copy.h"

#define ORDER_IN_CALL 2 /* the source is read before the call returns */
#define ORDERS        3
#define FLAGS         1u /* CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE */

/* The batch of one call: how each of its copies is made, and how many there are. */
struct batch {
    CUresult (*make)(const struct batch *batch, size_t index, struct operation *operation, int *order);
    size_t count;
    const CUdeviceptr *to, *from;
    const size_t *sizes;
    const CUmemcpyAttributes *attributes;
    const size_t *first;
    size_t kinds;
    const CUDA_MEMCPY3D_BATCH_OP *solids;
};

static bool valid_order(int order, unsigned flags) {
    return order > 0 && order <= ORDERS && flags <= FLAGS;
}

/* Each row of attributes begins at a later copy than the one before, the first at the first. */
static bool valid_rows(const struct batch *batch) {
    if (batch->to == NULL || batch->from == NULL || batch->sizes == NULL) return false;
    if (batch->attributes == NULL || batch->first == NULL || batch->kinds == 0) return false;
    bool valid = batch->first[0] == 0 && batch->kinds <= batch->count;
    for (size_t kind = 0; valid && kind < batch->kinds; kind++) {
        const CUmemcpyAttributes *attributes = &batch->attributes[kind];
        valid = batch->first[kind] < batch->count && valid_order(attributes->order, attributes->flags) &&
                (kind == 0 || batch->first[kind] > batch->first[kind - 1]);
    }
    return valid;
}

static CUresult make_line(const struct batch *batch, size_t index, struct operation *operation, int *order) {
    uint64_t to = batch->to[index], from = batch->from[index], size = batch->sizes[index];
    size_t kind = batch->kinds - 1;
    while (batch->first[kind] > index) kind--;
    *order = batch->attributes[kind].order;
    *operation = (struct operation){.kind = OPERATION_COPY,
                                    .to = to,
                                    .from = from,
                                    .size = size,
                                    .rows = 1,
                                    .layers = 1,
                                    .to_device = contents_is_device(to),
                                    .from_device = contents_is_device(from)};
    return to != 0 && from != 0 && size != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Bytes of an element of an operand; 1 for a pointer. */
static CUresult find_element(const struct copied_operand *operand, size_t *element) {
    struct array_bytes bytes;
    *element = 1;
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) return CUDA_SUCCESS;
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = array_find_bytes(operand->of.array.array, &bytes);
    if (result == CUDA_SUCCESS) *element = bytes.element;
    return result;
}

/* The element of two arrays must be the same; of a pointer it is the other side's. */
static CUresult find_elements(const CUDA_MEMCPY3D_BATCH_OP *copy, size_t *element) {
    size_t from, to;
    CUresult result = find_element(&copy->from, &from);
    if (result == CUDA_SUCCESS) result = find_element(&copy->to, &to);
    if (result != CUDA_SUCCESS) return result;
    bool arrays = copy->from.type == CU_MEMCPY_OPERAND_TYPE_ARRAY && copy->to.type == copy->from.type;
    *element = from > to ? from : to;
    return arrays && from != to ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static struct copied_solid side_of(const struct copied_operand *operand, const CUDA_MEMCPY3D_BATCH_OP *copy,
                                   size_t element) {
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        return (struct copied_solid){.type = CU_MEMORYTYPE_ARRAY,
                                     .array = operand->of.array.array,
                                     .x = operand->of.array.x * element,
                                     .y = operand->of.array.y,
                                     .z = operand->of.array.z};
    size_t row = operand->of.pointer.row, layer = operand->of.pointer.layer;
    return (struct copied_solid){.type = CU_MEMORYTYPE_UNIFIED,
                                 .device = operand->of.pointer.address,
                                 .pitch = (row != 0 ? row : copy->width) * element,
                                 .height = layer != 0 ? layer : copy->height};
}

static bool is_nothing(const struct copied_operand *operand) {
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER && operand->of.pointer.address == 0;
}

static CUresult make_solid(const struct batch *batch, size_t index, struct operation *operation, int *order) {
    const CUDA_MEMCPY3D_BATCH_OP *copy = &batch->solids[index];
    size_t element;
    bool empty = copy->width == 0 || copy->height == 0 || copy->depth == 0;
    *order = copy->order;
    if (empty || !valid_order(copy->order, copy->flags)) return CUDA_ERROR_INVALID_VALUE;
    if (is_nothing(&copy->from) || is_nothing(&copy->to)) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = find_elements(copy, &element);
    if (result != CUDA_SUCCESS) return result;
    const CUDA_MEMCPY3D solid = {.from = side_of(&copy->from, copy, element),
                                 .to = side_of(&copy->to, copy, element),
                                 .width = copy->width * element,
                                 .height = copy->height,
                                 .depth = copy->depth};
    return copy_solid(&solid, operation);
}

/* Makes all operations. `*failed`: which one is wrong. */
static CUresult make_all(const struct batch *batch, struct operation *operations, int *orders,
                         size_t *failed) {
    CUresult result = CUDA_SUCCESS;
    for (size_t index = 0; result == CUDA_SUCCESS && index < batch->count; index++) {
        result = batch->make(batch, index, &operations[index], &orders[index]);
        if (result == CUDA_SUCCESS && !operation_can(&operations[index])) result = CUDA_ERROR_INVALID_VALUE;
        if (result != CUDA_SUCCESS && failed != NULL) *failed = index;
    }
    return result;
}

static CUresult submit(const struct batch *batch, const struct lane *lane, size_t *failed) {
    struct operation *operations = calloc(batch->count, sizeof *operations);
    int *orders = calloc(batch->count, sizeof *orders);
    CUresult result = operations != NULL && orders != NULL ? make_all(batch, operations, orders, failed)
                                                           : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t index = 0; result == CUDA_SUCCESS && index < batch->count; index++) {
        result = copy_submit(lane, &operations[index], orders[index] == ORDER_IN_CALL);
    }
    free(operations);
    free(orders);
    return result;
}

static CUresult run(const char *call, const struct batch *batch, bool valid, size_t *failed, CUstream stream,
                    bool per_thread) {
    struct lane lane;
    if (failed != NULL) *failed = SIZE_MAX;
    driver_step(call);
    CUresult result = work_enter(stream, per_thread, &lane);
    if (result != CUDA_SUCCESS) return result;
    if (lane.stream == NULL || !valid || batch->count == 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    bool captured = lane.made != NULL && lane.made->capture != NULL;
    if (captured) return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return driver_leave(submit(batch, &lane, failed));
}

static CUresult run_lines(const char *call, struct batch batch, size_t *failed, CUstream stream,
                          bool per_thread) {
    batch.make = make_line;
    return run(call, &batch, batch.count != 0 && valid_rows(&batch), failed, stream, per_thread);
}

static CUresult run_solids(const char *call, size_t count, const CUDA_MEMCPY3D_BATCH_OP *copies,
                           size_t *failed, unsigned long long flags, CUstream stream, bool per_thread) {
    const struct batch batch = {.make = make_solid, .count = count, .solids = copies};
    return run(call, &batch, copies != NULL && flags == 0, failed, stream, per_thread);
}

#define LINES                                                                                                \
    (struct batch) {                                                                                         \
        .count = count, .to = to, .from = from, .sizes = sizes, .attributes = attributes, .first = first,    \
        .kinds = kinds                                                                                       \
    }
#define LINE_BATCH(call, per_thread)                                                                         \
    CUresult call(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,                           \
                  CUmemcpyAttributes *attributes, size_t *first, size_t kinds, size_t *failed,               \
                  CUstream stream) {                                                                         \
        return run_lines(#call, LINES, failed, stream, per_thread);                                          \
    }
#define LINE_BATCH_v2(call, per_thread)                                                                      \
    CUresult call(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,                           \
                  CUmemcpyAttributes *attributes, size_t *first, size_t kinds, CUstream stream) {            \
        return run_lines(#call, LINES, NULL, stream, per_thread);                                            \
    }
#define SOLID_BATCH(call, per_thread)                                                                        \
    CUresult call(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags,    \
                  CUstream stream) {                                                                         \
        return run_solids(#call, count, copies, failed, flags, stream, per_thread);                          \
    }
#define SOLID_BATCH_v2(call, per_thread)                                                                     \
    CUresult call(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream) { \
        return run_solids(#call, count, copies, NULL, flags, stream, per_thread);                            \
    }

LINE_BATCH(cuMemcpyBatchAsync, false)
LINE_BATCH(cuMemcpyBatchAsync_ptsz, true)
LINE_BATCH_v2(cuMemcpyBatchAsync_v2, false) LINE_BATCH_v2(cuMemcpyBatchAsync_v2_ptsz, true)
    SOLID_BATCH(cuMemcpy3DBatchAsync, false) SOLID_BATCH(cuMemcpy3DBatchAsync_ptsz, true)
        SOLID_BATCH_v2(cuMemcpy3DBatchAsync_v2, false) SOLID_BATCH_v2(cuMemcpy3DBatchAsync_v2_ptsz, true)
