/* SPDX-License-Identifier: Apache-2.0
 *
 * What an address belongs to. Of virtual memory a range is the reservation and a mapping the piece, and it
 * has neither a context nor a handle of the older IPC: as seen on an H200 with driver 580.159.
 */
#include <string.h>

#include "libcuda/legacy/legacy_api.h"
#include "libcuda/memory/pool.h"
#include "libcuda/virtual/virtual.h"
#include "libcuda/work/contents.h"
#include "libcuda/work/host.h"

enum attribute {
    CONTEXT = 1,
    MEMORY_TYPE,
    DEVICE_POINTER,
    HOST_POINTER,
    SYNCHRONOUS = 6,
    BUFFER_ID,
    MANAGED,
    ORDINAL,
    LEGACY_IPC,
    RANGE_START,
    RANGE_SIZE,
    MAPPED,
    HANDLE_TYPES,
    RDMA,
    ACCESS,
    POOL,
    MAPPING_SIZE,
    MAPPING_START,
    BLOCK_ID,
    DECOMPRESSION,
    ATTRIBUTES,
};

#define HOST_MEMORY   1
#define DEVICE_MEMORY 2
#define READ_WRITE    3

/* Of one address, each attribute as a number. */
struct description {
    uint64_t value[ATTRIBUTES];
    bool known[ATTRIBUTES];
};

static unsigned size_of(int attribute) {
    switch (attribute) {
    case CONTEXT:
    case DEVICE_POINTER:
    case HOST_POINTER:
    case BUFFER_ID:
    case RANGE_START:
    case RANGE_SIZE:
    case HANDLE_TYPES:
    case POOL:
    case MAPPING_SIZE:
    case MAPPING_START:
    case BLOCK_ID:
        return 8;
    case MAPPED:
    case RDMA:
    case MANAGED:
    case LEGACY_IPC:
    case SYNCHRONOUS:
    case DECOMPRESSION:
        return 1; /* a bool; an int is what callers mostly give, and keep zeroed */
    default:
        return 4;
    }
}

static void say(struct description *description, int attribute, uint64_t value) {
    description->value[attribute] = value;
    description->known[attribute] = true;
}

static void describe_device(struct description *d, uint64_t address, const struct block *block) {
    say(d, MEMORY_TYPE, DEVICE_MEMORY);
    say(d, DEVICE_POINTER, address);
    say(d, SYNCHRONOUS, 0);
    say(d, BUFFER_ID, block->serial);
    say(d, BLOCK_ID, block->serial);
    say(d, MANAGED, block->pages != NULL);
    say(d, MAPPED, 1);
    say(d, POOL, 0);
    say(d, DECOMPRESSION, 0);
    say(d, MAPPING_START, block->address);
    say(d, MAPPING_SIZE, block->size);
}

static void describe_mapping(struct description *d, const struct block *block) {
    const struct physical *physical = block->owner;
    uint64_t start = block->address, size = block->size;
    reservation_bounds(block->address, &start, &size);
    say(d, CONTEXT, 0);
    say(d, ORDINAL, (uint64_t)physical->properties.location.id);
    say(d, LEGACY_IPC, 0);
    say(d, HANDLE_TYPES, (uint64_t)physical->properties.handle_types);
    say(d, RDMA, physical->properties.flags.rdma);
    say(d, ACCESS, (uint64_t)block->access);
    say(d, RANGE_START, start);
    say(d, RANGE_SIZE, size);
}

static void describe_block(struct description *d, const struct block *block) {
    const struct context *context = block->kind == BLOCK_MEMORY ? block->owner : NULL;
    const struct pool *pool = block->kind == BLOCK_POOL ? block->owner : NULL;
    int device = context != NULL ? context->device : pool != NULL ? pool->arena.device : 0;
    say(d, CONTEXT, (uint64_t)(uintptr_t)context);
    say(d, ORDINAL, (uint64_t)device);
    say(d, LEGACY_IPC, context != NULL && block->pages == NULL);
    say(d, HANDLE_TYPES, 0);
    say(d, RDMA, context != NULL);
    say(d, ACCESS, READ_WRITE);
    say(d, POOL, (uint64_t)(uintptr_t)pool);
    say(d, RANGE_START, block->address);
    say(d, RANGE_SIZE, block->size);
}

/* Returns false if nothing is there. driver.mutex held. */
static bool describe(struct description *description, uint64_t address) {
    memset(description, 0, sizeof *description);
    if (host_is_registered(address)) {
        say(description, MEMORY_TYPE, HOST_MEMORY);
        say(description, HOST_POINTER, address);
        say(description, DEVICE_POINTER, address);
        say(description, ORDINAL, 0);
        return true;
    }
    const struct block *block = mapping_at(address);
    bool mapping = block != NULL;
    if (!mapping) block = blocks_containing(&driver.blocks, address);
    if (block == NULL || (!mapping && block->kind == BLOCK_MAPPING)) return false;
    describe_device(description, address, block);
    if (mapping)
        describe_mapping(description, block);
    else
        describe_block(description, block);
    return true;
}

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
    struct context *context = NULL;
    struct description description;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    bool valid = data != NULL && attribute >= CONTEXT && attribute < ATTRIBUTES &&
                 describe(&description, address) && description.known[attribute];
    if (valid) memcpy(data, &description.value[attribute], size_of(attribute));
    return driver_leave(valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* What is not known is 0, and no error. */
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **data, CUdeviceptr address) {
    struct context *context = NULL;
    struct description description;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (attributes == NULL || data == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    (void)describe(&description, address);
    for (unsigned i = 0; i < count; i++) {
        bool named = attributes[i] >= CONTEXT && attributes[i] < ATTRIBUTES;
        if (!named) return driver_leave(CUDA_ERROR_INVALID_VALUE);
        memcpy(data[i], &description.value[attributes[i]], size_of(attributes[i]));
    }
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
    struct context *context = NULL;
    struct description description;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    bool valid = value != NULL && attribute == SYNCHRONOUS && describe(&description, address);
    return driver_leave(valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    struct context *context = NULL;
    struct description description;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    bool found = describe(&description, address) && description.known[MAPPING_START];
    if (!found) return driver_leave(CUDA_ERROR_NOT_FOUND);
    if (base != NULL) *base = description.value[MAPPING_START];
    if (size != NULL) *size = description.value[MAPPING_SIZE];
    return driver_leave(CUDA_SUCCESS);
}
