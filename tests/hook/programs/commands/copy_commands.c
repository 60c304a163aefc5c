/* SPDX-License-Identifier: Apache-2.0
 *
 * copyKIND FROM TO SIZE STREAM ARRAY: copies of layers, in batches and by an array (of bytes, one dimension),
 * each by its own call. givedmabuf ADDRESS SIZE, givemulticast SIZE, givebind OBJECT ADDRESS SIZE,
 * givebindhandle OBJECT HANDLE SIZE, giveunbind OBJECT SIZE: memory that others reach.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

#define CALL(symbol, ...) ((CUresult (*)(__VA_ARGS__))driver_symbol(#symbol))
#define WORD(pointer)     ((uint64_t)(uintptr_t)(pointer))

enum { DEVICE = 2, ARRAY = 3, IN_STREAM = 1 };

struct side {
    size_t x, y, z, level;
    int type;
    const void *host;
    CUdeviceptr device;
    void *array, *context;
    size_t pitch, height;
};

struct solid {
    struct side from, to;
    size_t width, height, depth;
};
_Static_assert(sizeof(struct solid) == 200, "as in cuda.h");

struct flat_side {
    size_t x, y;
    int type;
    const void *host;
    CUdeviceptr device;
    void *array;
    size_t pitch;
};

struct flat {
    struct flat_side from, to;
    size_t width, height;
};
_Static_assert(sizeof(struct flat) == 128, "as in cuda.h");

struct operand {
    int type;
    CUdeviceptr address;
    size_t row, layer, rest;
};

struct batched {
    struct operand from, to;
    size_t width, height, depth;
    int order;
    unsigned flags;
};
_Static_assert(sizeof(struct batched) == 112, "as in cuda.h");

/* In two rows. */
static CUresult copy_solid(const char *kind, const size_t *number) {
    const struct solid solid = {.from = {.type = DEVICE, .device = number[0], .height = 2},
                                .to = {.type = DEVICE, .device = number[1], .height = 2},
                                .width = number[2] / 2,
                                .height = 2,
                                .depth = 1};
    if (strcmp(kind, "solid") == 0) return cuda.cuMemcpy3D_v2(WORD(&solid));
    if (strcmp(kind, "solidasync") == 0) return cuda.cuMemcpy3DAsync_v2(WORD(&solid), number[3]);
    if (strcmp(kind, "peer") == 0) return cuda.cuMemcpy3DPeer(WORD(&solid));
    return strcmp(kind, "peerasync") == 0 ? cuda.cuMemcpy3DPeerAsync(WORD(&solid), number[3]) : -1;
}

/* Of two copies, each of a half. */
static CUresult copy_batch(const char *kind, const size_t *number) {
    const size_t half = number[2] / 2, sizes[2] = {half, half}, first[1] = {0};
    const CUdeviceptr from[2] = {number[0], number[0] + half}, to[2] = {number[1], number[1] + half};
    const int attributes[6] = {IN_STREAM};
    struct batched solids[2];
    for (int index = 0; index < 2; index++)
        solids[index] =
            (struct batched){{1, from[index], 0, 0, 0}, {1, to[index], 0, 0, 0}, half, 1, 1, 1, 0};
    size_t failed;
    if (strcmp(kind, "batch") == 0)
        return cuda.cuMemcpyBatchAsync(WORD(to), WORD(from), WORD(sizes), 2, WORD(attributes), WORD(first), 1,
                                       WORD(&failed), number[3]);
    if (strcmp(kind, "batch2") == 0)
        return cuda.cuMemcpyBatchAsync_v2(WORD(to), WORD(from), WORD(sizes), 2, WORD(attributes), WORD(first),
                                          1, number[3]);
    if (strcmp(kind, "solids") == 0)
        return cuda.cuMemcpy3DBatchAsync(2, WORD(solids), WORD(&failed), 0, number[3]);
    return strcmp(kind, "solids2") == 0 ? cuda.cuMemcpy3DBatchAsync_v2(2, WORD(solids), 0, number[3]) : -1;
}

/* From the array; `toarray`: to it. */
static CUresult copy_array(const char *kind, const size_t *number) {
    const struct flat flat = {.from = {.type = ARRAY, .array = (void *)number[4]},
                              .to = {.type = DEVICE, .device = number[1]},
                              .width = number[2],
                              .height = 1};
    if (strcmp(kind, "toarray") == 0) return cuda.cuMemcpyDtoA_v2(number[4], 0, number[0], number[2]);
    if (strcmp(kind, "line") == 0) return cuda.cuMemcpyAtoD_v2(number[1], number[4], 0, number[2]);
    if (strcmp(kind, "flat") == 0) return cuda.cuMemcpy2D_v2(WORD(&flat));
    return strcmp(kind, "flatasync") == 0 ? cuda.cuMemcpy2DAsync_v2(WORD(&flat), number[3]) : -1;
}

static CUresult run_give(const char *kind, const size_t *number, char *values) {
    const struct {
        unsigned devices;
        size_t size;
        unsigned long long types, flags;
    } properties = {.devices = 1, .size = number[0]};
    uint64_t made = 0;
    CUresult result = -1;
    if (strcmp(kind, "dmabuf") == 0)
        result = cuda.cuMemGetHandleForAddressRange(&made, number[0], number[1], 1, 0);
    if (strcmp(kind, "multicast") == 0) {
        result = CALL(cuMulticastCreate, uint64_t *, const void *)(&made, &properties);
        if (result == 0) result = CALL(cuMulticastAddDevice, uint64_t, CUdevice)(made, 0);
    }
    if (strcmp(kind, "bind") == 0) return cuda.cuMulticastBindAddr(number[0], 0, number[1], number[2], 0);
    if (strcmp(kind, "bindhandle") == 0)
        return CALL(cuMulticastBindMem, uint64_t, size_t, uint64_t, size_t, size_t,
                    unsigned long long)(number[0], 0, number[1], 0, number[2], 0);
    if (strcmp(kind, "unbind") == 0)
        return CALL(cuMulticastUnbind, uint64_t, CUdevice, size_t, size_t)(number[0], 0, 0, number[1]);
    if (result != -1) sprintf(values, " %#lx", (unsigned long)made);
    return result;
}

CUresult run_copy(const char *command, const size_t *number, char *values) {
    if (strncmp(command, "give", 4) == 0) return run_give(command + 4, number, values);
    if (strncmp(command, "copy", 4) != 0) return -1;
    CUresult result = copy_solid(command + 4, number);
    if (result == -1) result = copy_batch(command + 4, number);
    return result == -1 ? copy_array(command + 4, number) : result;
}
