/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays, whose layout the driver chooses and does not tell. What an array takes is
 * computed from its descriptor, as an upper bound, and never corrected: the driver answers
 * cuArrayGetMemoryRequirements only for arrays that have no memory yet. On an H200 (driver 580.159) rows are
 * made of 64-byte pieces and lie in groups: of 8 to 128 for a flat array, of 8 to 16 for a solid one, whose
 * slices lie in groups of up to 32; small extents take small groups. 14 shapes took there what this gives, or
 * up to a fifth less. Of a sparse array all addresses have page tables, which are charged (`hidden`).
 */
#include "accounting/allocations.h"
#include "accounting/charge.h"
#include "accounting/device.h"
#include "mapped/page_tables.h"
#include "tables/registry.h"

enum { ROW_PIECE = 64, ROW_GROUP = 8, FLAT_GROUP = 128, SOLID_GROUP = 16, SLICE_GROUP = 32 };
enum { LARGEST_EXTENT = 1 << 20 }; /* larger ones no device has */
enum { LAYERED = 0x01, CUBEMAP = 0x04, SPARSE = 0x40, DEFERRED = 0x80 };
enum { FIRST_BLOCK_FORMAT = 0x91, LAST_BLOCK_FORMAT = 0x9e, BLOCK_EDGE = 4, BLOCK_SIZE = 16 };
enum { LARGEST_ELEMENT = 16 };
enum { SPARSE_OF_TABLES = 8192, TABLE = 4096 }; /* bytes; 16 GiB took 2 MiB on that H200 */

static struct allocations arrays = ALLOCATIONS_INITIALIZER;

/* One creation; `attempt` calls the driver and writes `array`. */
struct array_request {
    struct charge charge;
    charge_attempt *attempt;
    CUresult (*destroy)(void *array);
    const void *descriptor; /* the program's, in the form of the call */
    struct array_descriptor shape;
    unsigned levels;
    void *array;
};

/* Bytes of an element; of a block for a format that compresses blocks. At least what it takes. */
static uint64_t element_size(const struct array_descriptor *shape) {
    unsigned channels = shape->channels < 4 ? shape->channels : 4;
    switch (shape->format) {
    case 0x01: /* integers of 8 bits */
    case 0x08:
        return channels;
    case 0x02: /* of 16 bits, and half */
    case 0x09:
    case 0x10:
        return 2 * channels;
    case 0x03: /* of 32 bits, and float */
    case 0x0a:
    case 0x20:
        return 4 * channels;
    default:
        return LARGEST_ELEMENT;
    }
}

/* Rounds up to groups, which are as small as the extent allows. */
static uint64_t in_groups(uint64_t extent, uint64_t smallest, uint64_t largest) {
    uint64_t group = smallest;
    while (group < extent && group < largest) group *= 2;
    return (extent + group - 1) / group * group;
}

enum { FORM_FLAT, FORM_SOLID, FORM_MIPMAPPED };

/* Extents are at most LARGEST_EXTENT, so that only the last product can overflow. */
static uint64_t level_size(const struct array_descriptor *shape, unsigned level) {
    bool layered = shape->flags & (LAYERED | CUBEMAP);
    bool blocks = shape->format >= FIRST_BLOCK_FORMAT && shape->format <= LAST_BLOCK_FORMAT;
    uint64_t width = shape->width >> level, height = shape->height >> level;
    uint64_t depth = layered ? shape->depth : shape->depth >> level, size;
    bool solid = shape->depth > 0 && !layered;
    if (width == 0) width = 1;
    if (height == 0) height = 1;
    if (depth == 0) depth = 1;
    if (blocks) {
        width = (width + BLOCK_EDGE - 1) / BLOCK_EDGE;
        height = (height + BLOCK_EDGE - 1) / BLOCK_EDGE;
    }
    uint64_t row = (width * element_size(shape) + ROW_PIECE - 1) / ROW_PIECE * ROW_PIECE;
    height = in_groups(height, ROW_GROUP, solid ? SOLID_GROUP : FLAT_GROUP);
    if (solid) depth = in_groups(depth, 1, SLICE_GROUP);
    return __builtin_mul_overflow(row * height, depth, &size) ? UINT64_MAX : size;
}

/* The driver takes a number of levels that is out of range for the nearest one in range: from 1 to where the
 * last extent is 1. */
static uint64_t array_bound(const struct array_request *request) {
    const struct array_descriptor *shape = &request->shape;
    bool layered = shape->flags & (LAYERED | CUBEMAP);
    uint64_t longest = shape->width | shape->height | (layered ? 0 : shape->depth), size = 0;
    for (unsigned level = 0; level == 0 || (level < request->levels && longest >> level > 0); level++)
        if (__builtin_add_overflow(size, level_size(shape, level), &size)) return UINT64_MAX;
    return charge_round(size);
}

/* Gives back what it was charged with, which is in no table any more. */
static void array_end(const struct allocation *entry) {
    if (entry->address == 0) return;
    if (entry->hidden)
        page_tables_go(entry->size);
    else
        headroom_give((int)entry->device, entry->size);
}

/* `size` bytes are charged, for it or for its page tables. */
static CUresult array_enter(CUcontext context, const struct array_request *request, uint64_t size) {
    struct allocation replaced = {0};
    struct allocation entry = {.address = (uint64_t)(uintptr_t)request->array,
                               .size = size,
                               .hidden = (request->shape.flags & SPARSE) != 0,
                               .form = request->levels > 0        ? FORM_MIPMAPPED
                                       : request->shape.depth > 0 ? FORM_SOLID
                                                                  : FORM_FLAT,
                               .device = (uint64_t)request->charge.device,
                               .context = (uint64_t)(uintptr_t)context >> 1};
    bool entered = allocations_insert(&arrays, entry, &replaced);
    array_end(&replaced);
    if (entered) return CUDA_SUCCESS;
    request->destroy(request->array);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Extents that no device has are for the driver to refuse; nothing is given that was not charged. */
static CUresult array_create_impossible(struct array_request *request) {
    CUresult result = request->attempt(request);
    if (result != CUDA_SUCCESS) return result;
    request->destroy(request->array);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Memory is mapped to it later; that is charged where it is created. */
static CUresult array_create_sparse(struct array_request *request, CUcontext context) {
    uint64_t tables = (array_bound(request) / SPARSE_OF_TABLES + TABLE) / TABLE * TABLE;
    CUresult result = page_tables_come(request->charge.call, tables);
    if (result != CUDA_SUCCESS) return result;
    result = request->attempt(request);
    if (result == CUDA_SUCCESS) result = array_enter(context, request, tables);
    if (result != CUDA_SUCCESS) page_tables_go(tables);
    return result;
}

static CUresult array_create_charged(struct array_request *request) {
    CUcontext context;
    struct charge *charge = &request->charge;
    const struct array_descriptor *shape = &request->shape;
    charge->current = true;
    if (device_current(&context, &charge->device) != CUDA_SUCCESS)
        return request->attempt(request); /* the driver's own error */
    if (shape->width > LARGEST_EXTENT || shape->height > LARGEST_EXTENT || shape->depth > LARGEST_EXTENT)
        return array_create_impossible(request);
    if (shape->flags & SPARSE) return array_create_sparse(request, context);
    if (shape->flags & DEFERRED) return request->attempt(request); /* memory is mapped to it later */
    if (charge->device < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = charge_open(charge, array_bound(request));
    if (result == CUDA_SUCCESS) result = charge_make(charge, request->attempt, request);
    if (result != CUDA_SUCCESS) return result;
    result = array_enter(context, request, charge->size);
    if (result != CUDA_SUCCESS) charge_close(charge);
    return result;
}

/* The program's variable is written only when everything has succeeded. */
static CUresult array_create(void **array, struct array_request request) {
    CUresult result = array_create_charged(&request);
    if (result == CUDA_SUCCESS) *array = request.array;
    return result;
}

static CUresult array_driver_destroy(void *array) {
    return DRIVER(cuArrayDestroy, array);
}

static CUresult array_driver_destroy_mipmapped(void *array) {
    return DRIVER(cuMipmappedArrayDestroy, array);
}

/* Fields of a request that are the same in all forms of a descriptor. */
#define ARRAY_FLAT(descriptor)                                                                               \
    .width = (descriptor)->width, .height = (descriptor)->height, .format = (descriptor)->format,            \
    .channels = (descriptor)->channels
#define ARRAY_REQUEST(name, try, ...)                                                                        \
    (struct array_request){.charge.call = (name),                                                            \
                           .attempt = (try),                                                                 \
                           .destroy = array_driver_destroy,                                                  \
                           .descriptor = descriptor,                                                         \
                           .shape = {__VA_ARGS__},                                                           \
                           .levels = 1}

static CUresult array_attempt_flat(void *arguments) {
    struct array_request *request = arguments;
    return DRIVER(cuArrayCreate_v2, &request->array, request->descriptor);
}

CUresult hooked_cuArrayCreate_v2(void **array, const struct flat_descriptor *descriptor) {
    return array_create(array, ARRAY_REQUEST("cuArrayCreate", array_attempt_flat, ARRAY_FLAT(descriptor)));
}

static CUresult array_attempt_flat_v1(void *arguments) {
    struct array_request *request = arguments;
    return DRIVER(cuArrayCreate, &request->array, request->descriptor);
}

CUresult hooked_cuArrayCreate(void **array, const struct flat_descriptor_v1 *descriptor) {
    return array_create(array, ARRAY_REQUEST("cuArrayCreate", array_attempt_flat_v1, ARRAY_FLAT(descriptor)));
}

static CUresult array_attempt_solid(void *arguments) {
    struct array_request *request = arguments;
    return DRIVER(cuArray3DCreate_v2, &request->array, request->descriptor);
}

CUresult hooked_cuArray3DCreate_v2(void **array, const struct array_descriptor *descriptor) {
    return array_create(array, ARRAY_REQUEST("cuArray3DCreate", array_attempt_solid, ARRAY_FLAT(descriptor),
                                             .depth = descriptor->depth, .flags = descriptor->flags));
}

static CUresult array_attempt_solid_v1(void *arguments) {
    struct array_request *request = arguments;
    return DRIVER(cuArray3DCreate, &request->array, request->descriptor);
}

CUresult hooked_cuArray3DCreate(void **array, const struct array_descriptor_v1 *descriptor) {
    return array_create(array,
                        ARRAY_REQUEST("cuArray3DCreate", array_attempt_solid_v1, ARRAY_FLAT(descriptor),
                                      .depth = descriptor->depth, .flags = descriptor->flags));
}

static CUresult array_attempt_mipmapped(void *arguments) {
    struct array_request *request = arguments;
    return DRIVER(cuMipmappedArrayCreate, &request->array, request->descriptor, request->levels);
}

CUresult hooked_cuMipmappedArrayCreate(void **array, const struct array_descriptor *descriptor,
                                       unsigned levels) {
    struct array_request request = {.charge.call = "cuMipmappedArrayCreate",
                                    .attempt = array_attempt_mipmapped,
                                    .destroy = array_driver_destroy_mipmapped,
                                    .descriptor = descriptor,
                                    .shape = *descriptor,
                                    .levels = levels};
    return array_create(array, request);
}

/* The entry goes first: the driver may give the handle to another thread before its call returns. */
static CUresult array_destroy(void *array, CUresult (*driver_destroy)(void *)) {
    struct allocation entry, replaced = {0};
    if (!allocations_remove(&arrays, (uint64_t)(uintptr_t)array, &entry)) return driver_destroy(array);
    CUresult result = driver_destroy(array);
    if (result == CUDA_SUCCESS)
        array_end(&entry);
    else if (allocations_insert(&arrays, entry, &replaced))
        array_end(&replaced);
    return result;
}

CUresult hooked_cuArrayDestroy(void *array) {
    return array_destroy(array, array_driver_destroy);
}

CUresult hooked_cuMipmappedArrayDestroy(void *array) {
    return array_destroy(array, array_driver_destroy_mipmapped);
}

static void array_mark(CUcontext context) {
    allocations_mark(&arrays, (uint64_t)(uintptr_t)context);
}

static void array_unmark(CUcontext context) {
    allocations_unmark(&arrays, (uint64_t)(uintptr_t)context);
}

struct dropped {
    uint64_t *sizes;
    uint64_t tables; /* bytes, of sparse ones */
};

static void array_add(const struct allocation *entry, void *argument) {
    struct dropped *dropped = argument;
    if (entry->hidden)
        dropped->tables += entry->size;
    else
        allocations_add_size(entry, dropped->sizes);
}

static void array_drop(CUcontext context, uint64_t *sizes) {
    struct dropped dropped = {.sizes = sizes};
    allocations_drop(&arrays, (uint64_t)(uintptr_t)context, array_add, &dropped);
    page_tables_go(dropped.tables);
}

/* For allocations_visit(). */
static void array_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    static const char *const calls[] = {"cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate"};
    visitor->visit(&(struct live_allocation){"array", (int)entry->device, entry->address, entry->size,
                                             calls[entry->form], entry->made},
                   visitor->argument);
}

static void array_enumerate(registry_visit *visit, void *argument) {
    allocations_visit(&arrays, array_show, &(struct registry_visitor){visit, argument});
}

static void array_reset(void) {
    allocations_reset(&arrays);
}
REGISTER_FAMILY(array, .reset = array_reset, .mark = array_mark, .unmark = array_unmark, .drop = array_drop,
                .enumerate = array_enumerate);
