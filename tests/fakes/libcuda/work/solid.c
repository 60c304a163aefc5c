/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of rows and layers, and to and from arrays. What is wrong is said as in cuda.h: extents beyond an
 * array or a pitch, a level, parts of an array's element are CUDA_ERROR_INVALID_VALUE.
 */
#include <limits.h>

#include "libcuda/memory/array.h"
#include "libcuda/work/contents.h"
#include "libcuda/work/copy.h"

/* The first byte of a side, and its rows and layers. */
struct place {
    uint64_t address, pitch, layer;
    bool device;
};

static bool within(size_t first, size_t count, size_t most) {
    return first <= most && count <= most - first;
}

static CUresult place_array(const struct copied_solid *side, const CUDA_MEMCPY3D *copy, struct place *place) {
    struct array_bytes bytes;
    CUresult result = array_find_bytes(side->array, &bytes);
    if (result != CUDA_SUCCESS) return result;
    bool fits = side->x % bytes.element == 0 && copy->width % bytes.element == 0 &&
                within(side->x, copy->width, bytes.width) && within(side->y, copy->height, bytes.height) &&
                within(side->z, copy->depth, bytes.depth);
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    uint64_t layer = bytes.width * bytes.height;
    uint64_t first = bytes.address + side->z * layer + side->y * bytes.width + side->x;
    *place = (struct place){first, bytes.width, layer, true};
    return CUDA_SUCCESS;
}

/* Without a pitch or a height there are no gaps. */
static CUresult place_memory(const struct copied_solid *side, const CUDA_MEMCPY3D *copy,
                             struct place *place) {
    bool unified = side->type == CU_MEMORYTYPE_UNIFIED, host = side->type == CU_MEMORYTYPE_HOST;
    if (!unified && !host && side->type != CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    uint64_t pitch = side->pitch != 0 ? side->pitch : side->x + copy->width;
    uint64_t height = side->height != 0 ? side->height : side->y + copy->height;
    if (pitch > INT_MAX || !within(side->x, copy->width, pitch)) return CUDA_ERROR_INVALID_VALUE;
    if (!within(side->y, copy->height, height)) return CUDA_ERROR_INVALID_VALUE;
    if (side->height == 0 && copy->depth > 1) return CUDA_ERROR_INVALID_VALUE;
    uint64_t base = host ? (uint64_t)(uintptr_t)side->host : side->device, layer = pitch * height;
    uint64_t first = base + side->z * layer + side->y * pitch + side->x;
    bool device = side->type == CU_MEMORYTYPE_DEVICE || (unified && contents_is_device(base));
    *place = (struct place){base == 0 ? 0 : first, pitch, layer, device};
    return CUDA_SUCCESS;
}

static CUresult place_side(const struct copied_solid *side, const CUDA_MEMCPY3D *copy, struct place *place) {
    if (side->level != 0) return CUDA_ERROR_INVALID_VALUE;
    return side->type == CU_MEMORYTYPE_ARRAY ? place_array(side, copy, place)
                                             : place_memory(side, copy, place);
}

CUresult copy_solid(const CUDA_MEMCPY3D *copy, struct operation *operation) {
    struct place to, from;
    CUresult result = place_side(&copy->from, copy, &from);
    if (result == CUDA_SUCCESS) result = place_side(&copy->to, copy, &to);
    if (result != CUDA_SUCCESS) return result;
    *operation = (struct operation){
        .kind = OPERATION_COPY,
        .to = to.address,
        .to_pitch = to.pitch,
        .to_layer = to.layer,
        .to_device = to.device,
        .from = from.address,
        .from_pitch = from.pitch,
        .from_layer = from.layer,
        .from_device = from.device,
        .size = copy->width,
        .rows = copy->height,
        .layers = copy->depth,
    };
    return CUDA_SUCCESS;
}

static CUresult submit(const CUDA_MEMCPY3D *copy, const struct lane *lane, bool waits) {
    struct operation operation;
    CUresult result = copy_solid(copy, &operation);
    return result == CUDA_SUCCESS ? copy_submit(lane, &operation, waits) : result;
}

static CUresult run(const char *call, const CUDA_MEMCPY3D *copy, CUstream stream, bool per_thread,
                    bool waits) {
    struct lane lane;
    driver_step(call);
    CUresult result = work_enter(stream, per_thread, &lane);
    if (result != CUDA_SUCCESS) return result;
    return driver_leave(copy == NULL ? CUDA_ERROR_INVALID_VALUE : submit(copy, &lane, waits));
}

/* With NULL where a copy between contexts has these. */
static CUresult run_solid(const char *call, const CUDA_MEMCPY3D *copy, CUstream stream, bool per_thread,
                          bool waits) {
    bool valid = copy == NULL || (copy->from.context == NULL && copy->to.context == NULL);
    return run(call, valid ? copy : NULL, stream, per_thread, waits);
}

static struct copied_solid flat_side(const struct copied_side *side) {
    return (struct copied_solid){.x = side->x,
                                 .y = side->y,
                                 .type = side->type,
                                 .host = side->host,
                                 .device = side->device,
                                 .array = side->array,
                                 .pitch = side->pitch};
}

static CUresult run_flat(const char *call, const CUDA_MEMCPY2D *copy, CUstream stream, bool per_thread,
                         bool waits) {
    if (copy == NULL) return run(call, NULL, stream, per_thread, waits);
    const CUDA_MEMCPY3D solid = {.from = flat_side(&copy->from),
                                 .to = flat_side(&copy->to),
                                 .width = copy->width,
                                 .height = copy->height,
                                 .depth = 1};
    return run(call, &solid, stream, per_thread, waits);
}

/* A part of an array of one dimension. */
static struct copied_solid of_array(CUarray array, size_t at) {
    return (struct copied_solid){.x = at, .type = CU_MEMORYTYPE_ARRAY, .array = array};
}

static struct copied_solid of_device(CUdeviceptr address) {
    return (struct copied_solid){.type = CU_MEMORYTYPE_DEVICE, .device = address};
}

static struct copied_solid of_host(const void *address) {
    return (struct copied_solid){.type = CU_MEMORYTYPE_HOST, .host = (void *)(uintptr_t)address};
}

static CUresult run_line(const char *call, struct copied_solid to, struct copied_solid from, size_t size,
                         CUstream stream, bool per_thread, bool waits) {
    const CUDA_MEMCPY3D copy = {.from = from, .to = to, .width = size, .height = 1, .depth = 1};
    return run(call, &copy, stream, per_thread, waits);
}

#define BOTH(call, twin, parameters, how, arguments, stream, waits)                                          \
    CUresult call parameters {                                                                               \
        return how(#call, UNPACK arguments, stream, false, waits);                                           \
    }                                                                                                        \
    CUresult twin parameters {                                                                               \
        return how(#call, UNPACK arguments, stream, true, waits);                                            \
    }
#define UNPACK(...) __VA_ARGS__

BOTH(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *copy), run_flat, (copy), NULL, true)
BOTH(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *copy), run_flat, (copy), NULL,
     true)
BOTH(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *copy, CUstream stream), run_flat,
     (copy), stream, false)
BOTH(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *copy), run_solid, (copy), NULL, true)
BOTH(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *copy, CUstream stream), run_solid,
     (copy), stream, false)
BOTH(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D *copy), run, (copy), NULL, true)
BOTH(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D *copy, CUstream stream), run, (copy),
     stream, false)
BOTH(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds, (CUdeviceptr to, CUarray from, size_t at, size_t size), run_line,
     (of_device(to), of_array(from, at), size), NULL, true)
BOTH(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds, (CUarray to, size_t at, CUdeviceptr from, size_t size), run_line,
     (of_array(to, at), of_device(from), size), NULL, true)
BOTH(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, (void *to, CUarray from, size_t at, size_t size), run_line,
     (of_host(to), of_array(from, at), size), NULL, true)
BOTH(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds, (CUarray to, size_t at, const void *from, size_t size), run_line,
     (of_array(to, at), of_host(from), size), NULL, true)
BOTH(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds,
     (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t size), run_line,
     (of_array(to, to_at), of_array(from, from_at), size), NULL, true)
BOTH(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz,
     (void *to, CUarray from, size_t at, size_t size, CUstream stream), run_line,
     (of_host(to), of_array(from, at), size), stream, false)
BOTH(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz,
     (CUarray to, size_t at, const void *from, size_t size, CUstream stream), run_line,
     (of_array(to, at), of_host(from), size), stream, false)
