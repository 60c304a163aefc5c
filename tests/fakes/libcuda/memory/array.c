/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays. They take as much as rows of 64 bytes in groups of eight would, level by
 * level, rounded like any other memory; how a card lays them out is not documented.
 */
#include "libcuda/memory/array.h"
#include "libcuda/driver.h"
#include "libcuda/handles.h"
#include "libcuda/memory/tables.h"
#include "libcuda/work/contents.h"

#define ROW_UNIT    64u
#define ROW_GROUP   8u
#define LEVELS_MAX  18u /* of the widest array */
#define TILE        (UINT64_C(64) << 10)
#define LARGEST_1D  131072u
#define LARGEST_2D  65536u
#define LARGEST_3D  16384u
#define LAYERS_MOST 2048u

/* An array, or (with `of` set) a level of a mipmapped one, which owns the memory. */
struct array {
    struct handle handle;
    struct array_memory *memory;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct mipmap *of;
    struct block *range; /* of addresses, for its bytes; NULL until it is copied to or from */
};

/* What an array and a mipmapped array have in common. */
struct array_memory {
    struct handle *owner; /* struct array or struct mipmap */
    struct context *context;
    uint64_t size;    /* bytes that it needs */
    uint64_t counted; /* bytes that it takes of the device: 0 if mapped later, or sparse */
    uint64_t tables;  /* bytes, of a sparse one */
    unsigned flags;
    struct array_memory *previous, *next;
};

struct mipmap {
    struct handle handle;
    struct array_memory memory;
    unsigned levels;
    struct array level[LEVELS_MAX];
};

struct single_array {
    struct array array; /* first: the handle is the address of all three */
    struct array_memory memory;
};

static struct array_memory *memories; /* of all live arrays */

/* Bytes of one component; 0 for a format that is not simulated. */
static unsigned component_size(int format) {
    switch (format) {
    case 0x01: /* unsigned, signed int8 */
    case 0x08:
        return 1;
    case 0x02: /* unsigned, signed int16, half */
    case 0x09:
    case 0x10:
        return 2;
    case 0x03: /* unsigned, signed int32, float */
    case 0x0a:
    case 0x20:
        return 4;
    default:
        return 0;
    }
}

static bool valid_extents(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    bool layered = d->flags & CUDA_ARRAY3D_LAYERED;
    if (d->flags & CUDA_ARRAY3D_CUBEMAP) {
        bool faces = layered ? d->depth != 0 && d->depth % 6 == 0 && d->depth <= LAYERS_MOST : d->depth == 6;
        return d->width != 0 && d->width == d->height && faces && d->width <= LARGEST_2D;
    }
    if (d->width == 0) return false;
    if (layered) return d->width <= LARGEST_2D && d->height <= LARGEST_2D && d->depth - 1 < LAYERS_MOST;
    if (d->depth == 0) return d->width <= LARGEST_1D && d->height <= LARGEST_2D;
    return d->width <= LARGEST_3D && d->height - 1 < LARGEST_3D && d->depth <= LARGEST_3D;
}

static bool valid(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    bool channels = d->channels == 1 || d->channels == 2 || d->channels == 4;
    return channels && component_size(d->format) != 0 && d->flags <= CUDA_ARRAY3D_FLAGS && valid_extents(d);
}

static size_t at_level(size_t extent, unsigned level) {
    return extent == 0 || extent >> level != 0 ? extent >> level : 1;
}

static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *whole, unsigned level) {
    CUDA_ARRAY3D_DESCRIPTOR result = *whole;
    bool layers = whole->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    result.width = at_level(whole->width, level);
    result.height = at_level(whole->height, level);
    result.depth = layers ? whole->depth : at_level(whole->depth, level);
    return result;
}

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* The extents are checked, so that nothing overflows. */
static uint64_t level_size(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    uint64_t row = round_up((uint64_t)d->width * d->channels * component_size(d->format), ROW_UNIT);
    uint64_t rows = d->height == 0 ? 1 : round_up(d->height, ROW_GROUP);
    return row * rows * (d->depth == 0 ? 1 : d->depth);
}

/* Takes the memory and enters it. driver.mutex held. */
static CUresult start(struct array_memory *memory, struct handle *owner, struct context *context,
                      uint64_t size, unsigned flags) {
    bool later = flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
    *memory = (struct array_memory){
        .owner = owner,
        .context = context,
        .size = round_up(size, TILE),
        .counted = later ? 0 : blocks_counted(size),
        .tables = flags & CUDA_ARRAY3D_SPARSE ? size / TABLE_OF_SPARSE : 0,
        .flags = flags,
        .next = memories,
    };
    if (!device_take(context->device, memory->counted)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!tables_take(context->device, memory->tables)) {
        device_give(context->device, memory->counted);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (memories != NULL) memories->previous = memory;
    memories = memory;
    return CUDA_SUCCESS;
}

static uint64_t row_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    return (uint64_t)d->width * d->channels * component_size(d->format);
}

static uint64_t all_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    return row_bytes(d) * (d->height == 0 ? 1 : d->height) * (d->depth == 0 ? 1 : d->depth);
}

CUresult array_find_bytes(CUarray handle, struct array_bytes *bytes) {
    struct array *array = handle_find(HANDLE_ARRAY, handle);
    if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (array->memory->counted == 0) return CUDA_ERROR_INVALID_VALUE; /* sparse, or mapped later */
    const CUDA_ARRAY3D_DESCRIPTOR *d = &array->descriptor;
    if (array->range == NULL) array->range = blocks_take_range(&driver.blocks, all_bytes(d));
    if (array->range == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *bytes = (struct array_bytes){
        .address = array->range->address,
        .width = row_bytes(d),
        .height = d->height == 0 ? 1 : d->height,
        .depth = d->depth == 0 ? 1 : d->depth,
        .element = d->channels * component_size(d->format),
        .flat = d->height == 0 && d->depth == 0,
    };
    return CUDA_SUCCESS;
}

static void forget_bytes(struct array *array) {
    if (array->range == NULL) return;
    contents_discard(array->range->address, all_bytes(&array->descriptor));
    blocks_give_range(&driver.blocks, array->range);
}

/* Ends the array whose memory it is. driver.mutex held. */
static void end(struct array_memory *memory) {
    device_give(memory->context->device, memory->counted);
    tables_give(memory->context->device, memory->tables);
    if (memory->next != NULL) memory->next->previous = memory->previous;
    if (memory->previous != NULL) {
        memory->previous->next = memory->next;
    } else {
        memories = memory->next;
    }
    if (memory->owner->kind == HANDLE_MIPMAP) {
        struct mipmap *mipmap = (struct mipmap *)memory->owner;
        for (unsigned level = 0; level < mipmap->levels; level++) {
            forget_bytes(&mipmap->level[level]);
            handle_forget(&mipmap->level[level]);
        }
    } else {
        forget_bytes((struct array *)memory->owner);
    }
    handle_delete(memory->owner);
}

void array_end_all(const struct context *context) {
    for (struct array_memory *memory = memories, *next; memory != NULL; memory = next) {
        next = memory->next;
        if (memory->context == context) end(memory);
    }
}

CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || descriptor == NULL || !valid(descriptor)) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct single_array *single = handle_new(HANDLE_ARRAY, sizeof *single);
    if (single == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    single->array.descriptor = *descriptor;
    single->array.memory = &single->memory;
    result =
        start(&single->memory, &single->array.handle, context, level_size(descriptor), descriptor->flags);
    if (result != CUDA_SUCCESS) {
        handle_delete(single);
        driver_leave(result);
        return refuse_memory();
    }
    *handle = &single->array;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *given) {
    if (given == NULL) return cuArray3DCreate_v2(array, NULL);
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {given->width,  given->height,   0,
                                                given->format, given->channels, 0};
    return cuArray3DCreate_v2(array, &descriptor);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *given) {
    if (given == NULL) return cuArray3DCreate_v2(array, NULL);
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {given->width,  given->height,   0,
                                                given->format, given->channels, 0};
    return cuArray3DCreate_v2(array, &descriptor);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *given) {
    if (given == NULL) return cuArray3DCreate_v2(array, NULL);
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {given->width,  given->height,   given->depth,
                                                given->format, given->channels, given->flags};
    return cuArray3DCreate_v2(array, &descriptor);
}

/* driver_enter, and finds the array or level. */
static CUresult enter_array(CUarray handle, const void *output, struct array **array) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *array = handle_find(HANDLE_ARRAY, handle);
    if (*array == NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return output != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray handle) {
    struct array *array = NULL;
    CUresult result = enter_array(handle, descriptor, &array);
    if (result != CUDA_SUCCESS) return result;
    *descriptor = array->descriptor;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray handle) {
    struct array *array = NULL;
    CUresult result = enter_array(handle, descriptor, &array);
    if (result != CUDA_SUCCESS) return result;
    const CUDA_ARRAY3D_DESCRIPTOR *whole = &array->descriptor;
    *descriptor = (CUDA_ARRAY_DESCRIPTOR){whole->width, whole->height, whole->format, whole->channels};
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuArrayDestroy(CUarray handle) {
    struct array *array = NULL;
    CUresult result = enter_array(handle, handle, &array);
    if (result != CUDA_SUCCESS) return result;
    if (array->of != NULL) return driver_leave(CUDA_ERROR_INVALID_HANDLE); /* ends with its mipmapped array */
    end(array->memory);
    return driver_leave(CUDA_SUCCESS);
}

/* Answered only for an array that is mapped later, and with driver.mutex held. */
static CUresult require(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, const struct array_memory *memory,
                        CUdevice device) {
    if (device < 0 || device >= driver.device_count) return CUDA_ERROR_INVALID_DEVICE;
    if (!(memory->flags & CUDA_ARRAY3D_DEFERRED_MAPPING)) return CUDA_ERROR_INVALID_VALUE;
    *requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = memory->size, .alignment = TILE};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray handle,
                                      CUdevice device) {
    struct array *array = NULL;
    CUresult result = enter_array(handle, requirements, &array);
    if (result != CUDA_SUCCESS) return result;
    return driver_leave(require(requirements, array->memory, device));
}

static unsigned clamp_levels(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
    bool layers = d->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    size_t largest = d->width > d->height ? d->width : d->height;
    if (!layers && d->depth > largest) largest = d->depth;
    unsigned most = 1;
    while (largest >> most != 0) most++;
    return levels == 0 ? 1 : levels < most ? levels : most;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned levels) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (handle == NULL || descriptor == NULL || !valid(descriptor)) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct mipmap *mipmap = handle_new(HANDLE_MIPMAP, sizeof *mipmap);
    if (mipmap == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t size = 0;
    mipmap->levels = clamp_levels(descriptor, levels);
    for (unsigned level = 0; level < mipmap->levels; level++) {
        struct array *array = &mipmap->level[level];
        *array = (struct array){.handle.kind = HANDLE_ARRAY, .memory = &mipmap->memory, .of = mipmap};
        array->descriptor = level_of(descriptor, level);
        size += level_size(&array->descriptor);
    }
    result = start(&mipmap->memory, &mipmap->handle, context, size, descriptor->flags);
    if (result != CUDA_SUCCESS) {
        handle_delete(mipmap);
        driver_leave(result);
        return refuse_memory();
    }
    for (unsigned level = 0; level < mipmap->levels; level++) handle_remember(&mipmap->level[level]);
    *handle = mipmap;
    return driver_leave(CUDA_SUCCESS);
}

/* driver_enter, and finds the mipmapped array. */
static CUresult enter_mipmap(CUmipmappedArray handle, struct mipmap **mipmap) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    *mipmap = handle_find(HANDLE_MIPMAP, handle);
    return *mipmap != NULL ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    struct mipmap *mipmap = NULL;
    CUresult result = enter_mipmap(handle, &mipmap);
    if (result != CUDA_SUCCESS) return result;
    end(&mipmap->memory);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray handle, unsigned level) {
    struct mipmap *mipmap = NULL;
    CUresult result = enter_mipmap(handle, &mipmap);
    if (result != CUDA_SUCCESS) return result;
    if (array == NULL || level >= mipmap->levels) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *array = &mipmap->level[level];
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                               CUmipmappedArray handle, CUdevice device) {
    struct mipmap *mipmap = NULL;
    CUresult result = enter_mipmap(handle, &mipmap);
    if (result != CUDA_SUCCESS) return result;
    if (requirements == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(require(requirements, &mipmap->memory, device));
}
