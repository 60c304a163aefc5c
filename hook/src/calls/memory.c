/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree and cuMemFreeAsync.
 */
#include "accounting/allocations.h"
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "accounting/deferred_free.h"
#include "accounting/device.h"
#include "accounting/small_pages.h"
#include "backing/backing.h"
#include "calls/live_memory.h"
#include "exports/kept.h"
#include "gate/captures.h"
#include "pools/pool.h"
#include "streams/thread_stream.h"
#include "tables/registry.h"
#include "unified/unified.h"

#include <convgpu/page.h>
#include <string.h>

enum { PITCH_STEP = 512 };
enum { FORM_PLAIN, FORM_PITCH };

/* One allocation; `attempt` calls the driver and writes `address`, and `pitch` and `bytes` where it chooses
 * them. The program's own variables are written only when everything has succeeded. */
struct alloc_request {
    charge_attempt *attempt;
    uint64_t bytes; /* that the driver needs, as far as is known before the call */
    CUdeviceptr address;
    size_t size, width, height, pitch;
    unsigned option; /* element size or flags */
    bool managed;
    bool movable; /* may be backed, in a process that takes part (backing/backing.h) */
};

/* Gives back what an entry was charged with. */
static void memory_end(const struct allocation *entry) {
    uint64_t charge = live_memory_leave(entry);
    if (charge > 0) headroom_give(entry->device, charge);
    if (entry->shared) kept_look();
}

/* Charges, calls the driver, and enters what it gave, on the device that the charge names. A small allocation
 * is charged with a page, which is given back when it lies in one that others have. At the limit one is tried
 * that should find room in pages that are charged: if it does not, it is as if it had not been. */
static CUresult memory_allocate_on(struct charge *charge, CUcontext context, struct alloc_request *request) {
    struct allocation replaced = {0};
    bool small = request->bytes <= LARGEST_SMALL, fits = false;
    charge->asked = request->bytes;
    uint64_t size = small ? PAGE_OF_DEVICE : charge_round(request->bytes);
    if (small && !charge_try(charge, size) && small_pages_could_hold(charge->device, request->bytes) &&
        request->attempt(request) == CUDA_SUCCESS) {
        fits = small_pages_hold(request->address, request->bytes);
        if (!fits) DRIVER(cuMemFree_v2, request->address);
    }
    bool charged = fits || charge->size > 0;
    CUresult result = charged ? CUDA_SUCCESS : charge_open(charge, size);
    if (result == CUDA_SUCCESS && !fits) result = charge_make(charge, request->attempt, request);
    if (result != CUDA_SUCCESS) return result;

    small = request->bytes <= LARGEST_SMALL; /* the pitch that the driver chose gives the bytes */
    struct allocation entry = {.address = request->address,
                               .form = request->pitch > 0 ? FORM_PITCH : FORM_PLAIN,
                               .size = small ? request->bytes : charge_round(request->bytes),
                               .device = (uint64_t)charge->device & 63,
                               .hidden = request->managed,
                               .context = (uint64_t)(uintptr_t)context >> 1};
    uint64_t taken;
    bool entered = small_pages_enter(charge->device, entry.address, entry.size, &taken);
    result = entered ? charge_adjust(charge, taken) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && !allocations_insert(live_memory_part(entry.address), entry, &replaced))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && entry.hidden) growth_hide(charge->device, entry.size);
    if (replaced.address != 0) memory_end(&replaced);
    if (result == CUDA_SUCCESS) return result;
    if (entered) (void)small_pages_leave(charge->device, entry.address, entry.size);
    DRIVER(cuMemFree_v2, request->address);
    charge_close(charge);
    return result;
}

static CUresult memory_allocate(struct charge *charge, struct alloc_request *request) {
    CUcontext context;
    if (device_current(&context, &charge->device) != CUDA_SUCCESS)
        return request->attempt(request); /* the driver's own error */
    if (charge->device < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (request->movable && backing_takes(request->bytes)) {
        CUresult result = backing_allocate(charge, context, request->bytes, &request->address);
        if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
    }
    return memory_allocate_on(charge, context, request);
}

static CUresult memory_attempt_linear(void *arguments) {
    struct alloc_request *request = arguments;
    return request->managed ? unified_allocate(&request->address, request->size)
                            : DRIVER(cuMemAlloc_v2, &request->address, request->size);
}

CUresult hooked_cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    struct charge charge = {.call = "cuMemAlloc", .current = true};
    struct alloc_request request = {.attempt = memory_attempt_linear,
                                    .bytes = size,
                                    .size = size,
                                    .movable = true,
                                    .managed = unified_takes(size)};
    CUresult result = memory_allocate(&charge, &request);
    if (result == CUDA_SUCCESS) *address = request.address;
    return result;
}

/* The form of CUDA 2, with addresses below 4 GiB. */
static CUresult memory_attempt_linear_v1(void *arguments) {
    struct alloc_request *request = arguments;
    uint32_t address = 0;
    CUresult result = DRIVER(cuMemAlloc, &address, (unsigned)request->size);
    request->address = address;
    return result;
}

CUresult hooked_cuMemAlloc(uint32_t *address, unsigned size) {
    struct charge charge = {.call = "cuMemAlloc", .current = true};
    struct alloc_request request = {.attempt = memory_attempt_linear_v1, .bytes = size, .size = size};
    CUresult result = memory_allocate(&charge, &request);
    if (result == CUDA_SUCCESS) *address = (uint32_t)request.address;
    return result;
}

static CUresult memory_attempt_managed(void *arguments) {
    struct alloc_request *request = arguments;
    return DRIVER(cuMemAllocManaged, &request->address, request->size, request->option);
}

CUresult hooked_cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    struct charge charge = {.call = "cuMemAllocManaged", .current = true};
    struct alloc_request request = {
        .attempt = memory_attempt_managed, .bytes = size, .size = size, .option = flags, .managed = true};
    CUresult result = memory_allocate(&charge, &request);
    if (result == CUDA_SUCCESS) *address = request.address;
    return result;
}

/* Rows are rounded up to 512 bytes, which every device so far satisfies; saturates instead of wrapping. */
static uint64_t memory_guess_bytes(size_t width, size_t height) {
    uint64_t bytes;
    if (width > UINT64_MAX - PITCH_STEP) return UINT64_MAX;
    uint64_t row = (width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP;
    return __builtin_mul_overflow(row, (uint64_t)height, &bytes) ? UINT64_MAX : bytes;
}

/* Allocates as `request` says; both variables are written only on success. */
static CUresult memory_allocate_pitch(struct alloc_request request, CUdeviceptr *address, size_t *pitch) {
    struct charge charge = {.call = "cuMemAllocPitch", .current = true};
    request.bytes = memory_guess_bytes(request.width, request.height);
    CUresult result = memory_allocate(&charge, &request);
    if (result != CUDA_SUCCESS) return result;
    *address = request.address;
    *pitch = request.pitch;
    return CUDA_SUCCESS;
}

/* The bytes by the pitch that the driver chose; they were guessed. */
static CUresult memory_correct_pitch(struct alloc_request *request, CUresult result) {
    if (result == CUDA_SUCCESS &&
        __builtin_mul_overflow((uint64_t)request->pitch, (uint64_t)request->height, &request->bytes))
        request->bytes = UINT64_MAX;
    return result;
}

static CUresult memory_attempt_pitch(void *arguments) {
    struct alloc_request *request = arguments;
    if (request->managed) return unified_allocate(&request->address, request->bytes);
    CUresult result = DRIVER(cuMemAllocPitch_v2, &request->address, &request->pitch, request->width,
                             request->height, request->option);
    return memory_correct_pitch(request, result);
}

/* A backed allocation has the pitch that the driver would choose; it has the last word on the element. */
CUresult hooked_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                   unsigned element) {
    struct alloc_request request = {.attempt = memory_attempt_pitch,
                                    .width = width,
                                    .height = height,
                                    .pitch = (width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP,
                                    .option = element,
                                    .movable = element == 4 || element == 8 || element == 16};
    request.managed = request.movable && height > 0 && unified_takes(memory_guess_bytes(width, height));
    return memory_allocate_pitch(request, address, pitch);
}

static CUresult memory_attempt_pitch_v1(void *arguments) {
    struct alloc_request *request = arguments;
    uint32_t address = 0;
    unsigned pitch = 0;
    CUresult result = DRIVER(cuMemAllocPitch, &address, &pitch, (unsigned)request->width,
                             (unsigned)request->height, request->option);
    request->address = address;
    request->pitch = pitch;
    return memory_correct_pitch(request, result);
}

CUresult hooked_cuMemAllocPitch(uint32_t *address, unsigned *pitch, unsigned width, unsigned height,
                                unsigned element) {
    struct alloc_request request = {
        .attempt = memory_attempt_pitch_v1, .width = width, .height = height, .option = element};
    CUdeviceptr wide_address;
    size_t wide_pitch;
    CUresult result = memory_allocate_pitch(request, &wide_address, &wide_pitch);
    if (result != CUDA_SUCCESS) return result;
    *address = (uint32_t)wide_address;
    *pitch = (unsigned)wide_pitch;
    return CUDA_SUCCESS;
}

/* One free; `attempt` calls the driver. */
struct free_request {
    charge_attempt *attempt;
    CUdeviceptr address;
    CUstream stream;
    bool deferred; /* in the order of the stream */
};

static void memory_defer(const struct allocation *entry, CUstream stream) {
    struct allocation replaced;
    if (!deferred_free_enter(*entry, stream, &replaced)) memory_end(entry);
    if (replaced.address != 0) memory_end(&replaced);
}

static CUresult memory_free_of_pool(struct free_request *request) {
    struct allocation entry;
    if (!pool_remove(request->address, &entry)) return request->attempt(request);
    CUresult result = request->attempt(request);
    if (result == CUDA_SUCCESS)
        pool_freed(&entry);
    else
        pool_restore(&entry);
    return result;
}

/* False: not a backed range, or one that a capture was asked to free, of which the driver says what it
 * thinks. */
static bool memory_free_backed(const struct free_request *request, CUresult *result) {
    int capturing = 0;
    if (!backing_has(request->address)) return false;
    if (!request->deferred) return backing_free(request->address, result);
    if (DRIVER(cuStreamIsCapturing, request->stream, &capturing) == CUDA_SUCCESS && capturing) return false;
    *result = DRIVER(cuStreamSynchronize, request->stream);
    return *result != CUDA_SUCCESS || backing_free(request->address, result);
}

/* The entry goes first: once the driver has freed the address, it may give it to another thread. Either kind
 * of free takes either kind of pointer. */
static CUresult memory_free(struct free_request *request) {
    struct allocation entry, replaced = {0};
    CUresult result;
    if (memory_free_backed(request, &result)) return result;
    if (!allocations_remove(live_memory_part(request->address), request->address, &entry))
        return memory_free_of_pool(request);
    result = request->attempt(request);
    if (result == CUDA_SUCCESS && request->deferred)
        memory_defer(&entry, request->stream);
    else if (result == CUDA_SUCCESS)
        memory_end(&entry);
    else if (allocations_insert(live_memory_part(entry.address), entry, &replaced) && replaced.address != 0)
        memory_end(&replaced);
    if (result == CUDA_SUCCESS && entry.hidden) unified_freed(entry.address);
    return result;
}

static CUresult memory_attempt_free(void *arguments) {
    struct free_request *request = arguments;
    return DRIVER(cuMemFree_v2, request->address);
}

CUresult hooked_cuMemFree_v2(CUdeviceptr address) {
    struct free_request request = {.attempt = memory_attempt_free, .address = address};
    return memory_free(&request);
}

static CUresult memory_attempt_free_v1(void *arguments) {
    struct free_request *request = arguments;
    return DRIVER(cuMemFree, (uint32_t)request->address);
}

CUresult hooked_cuMemFree(uint32_t address) {
    struct free_request request = {.attempt = memory_attempt_free_v1, .address = address};
    return memory_free(&request);
}

/* What is given to the thread's default stream before that can be had, is freed in the legacy one, which
 * waits for all that it would: nothing is paid back of what is owed, if nothing is freed. A capture would not
 * outlive that. */
static CUresult memory_free_in_own(struct free_request *request) {
    CUresult result = thread_stream_ready("cuMemFreeAsync");
    if (result != CUDA_SUCCESS && captures_count() > 0) return result;
    if (result != CUDA_SUCCESS) request->stream = (CUstream)CU_STREAM_LEGACY;
    return memory_free(request);
}

static CUresult memory_attempt_free_async(void *arguments) {
    struct free_request *request = arguments;
    return DRIVER(cuMemFreeAsync, request->address, request->stream);
}

CUresult hooked_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    struct free_request request = {
        .attempt = memory_attempt_free_async, .address = address, .stream = stream, .deferred = true};
    return IS_OWN_NONE((uintptr_t)stream) ? memory_free_in_own(&request) : memory_free(&request);
}

static CUresult memory_attempt_free_async_ptsz(void *arguments) {
    struct free_request *request = arguments;
    return DRIVER(cuMemFreeAsync_ptsz, request->address, request->stream);
}

CUresult hooked_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    struct free_request request = {
        .attempt = memory_attempt_free_async_ptsz, .address = address, .stream = stream, .deferred = true};
    return IS_OWN_PTSZ((uintptr_t)stream) ? memory_free_in_own(&request) : memory_free(&request);
}

static void memory_mark(CUcontext context) {
    for (int part = 0; part < LIVE_PARTS; part++)
        allocations_mark(&live_memory[part], (uint64_t)(uintptr_t)context);
}

static void memory_unmark(CUcontext context) {
    for (int part = 0; part < LIVE_PARTS; part++)
        allocations_unmark(&live_memory[part], (uint64_t)(uintptr_t)context);
}

/* For allocations_drop(): adds what the device gets back. */
static void memory_add_charge(const struct allocation *entry, void *sizes) {
    if (entry->hidden) unified_forget(entry->address);
    ((uint64_t *)sizes)[entry->device] += live_memory_leave(entry);
}

/* Streams end with their context, and what was freed in them with it. */
static void memory_drop(CUcontext context, uint64_t *sizes) {
    for (int part = 0; part < LIVE_PARTS; part++)
        allocations_drop(&live_memory[part], (uint64_t)(uintptr_t)context, memory_add_charge, sizes);
    deferred_free_end_all(memory_add_charge, sizes);
}

/* What was freed in the stream until now, or in a default one, is the device's again. */
static void memory_synchronised(CUstream stream, bool all) {
    uint64_t sizes[CONVGPU_MAX_DEVICES];
    if (!deferred_free_is_used()) return;
    memset(sizes, 0, sizeof sizes);
    if (all)
        deferred_free_end_all(memory_add_charge, sizes);
    else
        deferred_free_end(stream, memory_add_charge, sizes);
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++)
        if (sizes[device] > 0) headroom_give(device, sizes[device]);
}

/* For allocations_visit(). */
static void memory_show(const struct allocation *entry, void *argument) {
    const struct registry_visitor *visitor = argument;
    const char *call = entry->form == FORM_PITCH ? "cuMemAllocPitch" : "cuMemAlloc";
    visitor->visit(&(struct live_allocation){entry->hidden ? "managed memory" : "memory", (int)entry->device,
                                             entry->address, entry->size,
                                             entry->hidden ? "cuMemAllocManaged" : call, entry->made},
                   visitor->argument);
}

static void memory_enumerate(registry_visit *visit, void *argument) {
    struct registry_visitor visitor = {visit, argument};
    for (int part = 0; part < LIVE_PARTS; part++)
        allocations_visit(&live_memory[part], memory_show, &visitor);
    deferred_free_visit(memory_show, &visitor);
}

static void memory_reset(void) {
    live_memory_reset();
    deferred_free_reset();
    small_pages_reset();
}
REGISTER_FAMILY(memory, .reset = memory_reset, .synchronised = memory_synchronised, .mark = memory_mark,
                .unmark = memory_unmark, .drop = memory_drop, .mark_shared = live_memory_mark_shared,
                .share = live_memory_share, .enumerate = memory_enumerate);
