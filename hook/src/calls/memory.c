/* SPDX-License-Identifier: Apache-2.0 */
#include "calls/memory.h"

#include "scheduler/account.h"
#include "accounting/allocations.h"
#include "calls/array.h"
#include "accounting/charge.h"
#include "accounting/device.h"
#include "base/fork_reset.h"
#include "calls/graph.h"
#include "accounting/context_growth.h"
#include "accounting/deferred_free.h"
#include "accounting/small_pages.h"
#include "calls/pool.h"
#include "scheduler/session.h"

enum { PITCH_STEP = 512 };

/* In parts, so that a growing table copies a few of its entries at a time, and threads rarely meet. */
enum { PARTS = 64, PARTS_SHIFT = 58 };
static struct allocations live[PARTS];

static struct allocations *part_of(CUdeviceptr address) {
    return &live[address * 0xD6E8FEB86659FD93u >> PARTS_SHIFT];
}

/* One call on its way; `attempt` makes it and writes `address` and `pitch`. The program's own variables are
 * written only when everything has succeeded. */
struct taking {
    const char *call;
    charge_attempt *attempt;
    uint64_t bytes;  /* that the driver needs, as far as is known before the call */
    uint64_t charge; /* taken of the account for it so far */
    CUdeviceptr address;
    size_t size, width, height, pitch;
    unsigned option; /* element size or flags */
    bool managed;
};

/* Brings the charge to what it must be. */
static CUresult recharge(int device, struct taking *taking, uint64_t charge) {
    uint64_t settling;
    if (charge > taking->charge) {
        CUresult result = charge_take(device, charge - taking->charge, taking->call, &settling);
        if (result != CUDA_SUCCESS) return result;
    } else {
        charge_give(device, taking->charge - charge);
    }
    taking->charge = charge;
    return CUDA_SUCCESS;
}

/* The bytes by the pitch that the driver chose; they were guessed. */
static void correct_pitch(struct taking *taking) {
    if (taking->pitch == 0) return;
    if (__builtin_mul_overflow((uint64_t)taking->pitch, (uint64_t)taking->height, &taking->bytes))
        taking->bytes = UINT64_MAX;
}

static uint64_t end_charge(const struct allocation *entry) {
    return entry->small ? pages_leave(entry->device, entry->address, entry->size) : entry->size;
}

/* Gives back what an entry was charged with. */
static void end_entry(const struct allocation *entry) {
    uint64_t charge = end_charge(entry);
    if (entry->hidden) growth_show(entry->device, entry->size);
    charge_give(entry->device, charge);
}

/* Enters what the driver gave; on failure nothing is entered, and `charge` is for the caller to give back. */
static CUresult keep(int device, CUcontext context, struct taking *taking) {
    struct allocation replaced = {0};
    uint64_t charge;
    correct_pitch(taking);
    bool small = taking->bytes <= LARGEST_SMALL;
    struct allocation entry = {.address = taking->address,
                               .size = small ? taking->bytes : charge_round(taking->bytes),
                               .device = (uint64_t)device & 63,
                               .small = small,
                               .hidden = taking->managed,
                               .context = (uint64_t)(uintptr_t)context >> 1};
    if (!small) charge = entry.size;
    if (small && !pages_enter(device, entry.address, entry.size, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = recharge(device, taking, charge);
    if (result == CUDA_SUCCESS && !allocations_insert(part_of(entry.address), entry, &replaced))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS && small) (void)pages_leave(device, entry.address, entry.size);
    if (result == CUDA_SUCCESS && entry.hidden) growth_hide(device, entry.size);
    if (replaced.address != 0) end_entry(&replaced);
    return result;
}

/* Calls the driver with what is charged so far, and enters what it gave or gives it back to the driver. */
static CUresult make(int device, CUcontext context, struct taking *taking, uint64_t settling) {
    CUresult result =
        charge_make(device, taking->charge, taking->call, settling, true, taking->attempt, taking);
    if (result != CUDA_SUCCESS) taking->charge = 0;
    if (result != CUDA_SUCCESS) return result;
    result = keep(device, context, taking);
    if (result != CUDA_SUCCESS) DRIVER(cuMemFree_v2, taking->address);
    return result;
}

/* At the limit: tries one that should find room in pages that are charged. If it does not, it is as if it had
 * not been. */
static bool take_in_pages(int device, CUcontext context, struct taking *taking) {
    if (!pages_could_hold(device, taking->bytes) || taking->attempt(taking) != CUDA_SUCCESS) return false;
    correct_pitch(taking);
    bool kept = pages_hold(taking->address, taking->bytes) && keep(device, context, taking) == CUDA_SUCCESS;
    if (!kept) DRIVER(cuMemFree_v2, taking->address);
    return kept;
}

/* A small allocation is charged with a page, which is given back when it lies in one that others have. */
static CUresult take_small(int device, CUcontext context, struct taking *taking) {
    uint64_t settling = 0;
    if (!charge_try(device, PAGE_OF_DEVICE, taking->call)) {
        if (take_in_pages(device, context, taking)) return CUDA_SUCCESS;
        CUresult result = charge_take(device, PAGE_OF_DEVICE, taking->call, &settling);
        if (result != CUDA_SUCCESS) return result;
    }
    taking->charge = PAGE_OF_DEVICE;
    return make(device, context, taking, settling);
}

static CUresult take_large(int device, CUcontext context, struct taking *taking) {
    uint64_t settling;
    taking->charge = charge_round(taking->bytes);
    CUresult result = charge_take(device, taking->charge, taking->call, &settling);
    if (result == CUDA_SUCCESS) return make(device, context, taking, settling);
    taking->charge = 0;
    return result;
}

static CUresult take(struct taking *taking) {
    CUcontext context;
    int device;
    if (!session_ready()) return CUDA_ERROR_SYSTEM_NOT_READY;
    if (device_current(&context, &device) != CUDA_SUCCESS) return taking->attempt(taking); /* its own error */
    if (device < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    bool small = taking->bytes <= LARGEST_SMALL;
    CUresult result = small ? take_small(device, context, taking) : take_large(device, context, taking);
    if (result != CUDA_SUCCESS) charge_give(device, taking->charge);
    return result;
}

static CUresult attempt_linear(void *arguments) {
    struct taking *taking = arguments;
    return DRIVER(cuMemAlloc_v2, &taking->address, taking->size);
}

CUresult hooked_cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    if (!address || size == 0) return DRIVER(cuMemAlloc_v2, address, size);
    struct taking taking = {.call = "cuMemAlloc", .attempt = attempt_linear, .bytes = size, .size = size};
    CUresult result = take(&taking);
    if (result == CUDA_SUCCESS) *address = taking.address;
    return result;
}

/* The form of CUDA 2, with addresses below 4 GiB. */
static CUresult attempt_linear_v1(void *arguments) {
    struct taking *taking = arguments;
    uint32_t address = 0;
    CUresult result = DRIVER(cuMemAlloc, &address, (unsigned)taking->size);
    taking->address = address;
    return result;
}

CUresult hooked_cuMemAlloc(uint32_t *address, unsigned size) {
    if (!address || size == 0) return DRIVER(cuMemAlloc, address, size);
    struct taking taking = {.call = "cuMemAlloc", .attempt = attempt_linear_v1, .bytes = size, .size = size};
    CUresult result = take(&taking);
    if (result == CUDA_SUCCESS) *address = (uint32_t)taking.address;
    return result;
}

static CUresult attempt_managed(void *arguments) {
    struct taking *taking = arguments;
    return DRIVER(cuMemAllocManaged, &taking->address, taking->size, taking->option);
}

CUresult hooked_cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    if (!address || size == 0) return DRIVER(cuMemAllocManaged, address, size, flags);
    struct taking taking = {.call = "cuMemAllocManaged",
                            .attempt = attempt_managed,
                            .bytes = size,
                            .size = size,
                            .option = flags,
                            .managed = true};
    CUresult result = take(&taking);
    if (result == CUDA_SUCCESS) *address = taking.address;
    return result;
}

static CUresult attempt_pitch(void *arguments) {
    struct taking *taking = arguments;
    return DRIVER(cuMemAllocPitch_v2, &taking->address, &taking->pitch, taking->width, taking->height,
                  taking->option);
}

/* Rows are rounded up to 512 bytes, which every device so far satisfies; saturates instead of wrapping. */
static uint64_t guess_bytes(size_t width, size_t height) {
    uint64_t bytes;
    if (width > UINT64_MAX - PITCH_STEP) return UINT64_MAX;
    uint64_t row = (width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP;
    return __builtin_mul_overflow(row, (uint64_t)height, &bytes) ? UINT64_MAX : bytes;
}

CUresult hooked_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                   unsigned element) {
    if (!address || !pitch || width == 0 || height == 0)
        return DRIVER(cuMemAllocPitch_v2, address, pitch, width, height, element);
    struct taking taking = {.call = "cuMemAllocPitch",
                            .attempt = attempt_pitch,
                            .bytes = guess_bytes(width, height),
                            .width = width,
                            .height = height,
                            .option = element};
    CUresult result = take(&taking);
    if (result != CUDA_SUCCESS) return result;
    *address = taking.address;
    *pitch = taking.pitch;
    return CUDA_SUCCESS;
}

static CUresult attempt_pitch_v1(void *arguments) {
    struct taking *taking = arguments;
    uint32_t address = 0;
    unsigned pitch = 0;
    CUresult result = DRIVER(cuMemAllocPitch, &address, &pitch, (unsigned)taking->width,
                             (unsigned)taking->height, taking->option);
    taking->address = address;
    taking->pitch = pitch;
    return result;
}

CUresult hooked_cuMemAllocPitch(uint32_t *address, unsigned *pitch, unsigned width, unsigned height,
                                unsigned element) {
    if (!address || !pitch || width == 0 || height == 0)
        return DRIVER(cuMemAllocPitch, address, pitch, width, height, element);
    struct taking taking = {.call = "cuMemAllocPitch",
                            .attempt = attempt_pitch_v1,
                            .bytes = guess_bytes(width, height),
                            .width = width,
                            .height = height,
                            .option = element};
    CUresult result = take(&taking);
    if (result != CUDA_SUCCESS) return result;
    *address = (uint32_t)taking.address;
    *pitch = (unsigned)taking.pitch;
    return CUDA_SUCCESS;
}

/* One free on its way. */
struct freeing {
    charge_attempt *attempt;
    CUdeviceptr address;
    CUstream stream;
    bool late; /* in the order of the stream */
};

static void end_late(const struct allocation *entry, CUstream stream) {
    struct allocation replaced;
    if (!late_enter(*entry, stream, &replaced)) end_entry(entry);
    if (replaced.address != 0) end_entry(&replaced);
}

static CUresult free_of_pool(struct freeing *freeing) {
    struct allocation entry;
    if (!pool_remove(freeing->address, &entry)) return freeing->attempt(freeing);
    CUresult result = freeing->attempt(freeing);
    if (result == CUDA_SUCCESS)
        pool_freed(&entry);
    else
        pool_restore(&entry);
    return result;
}

/* The entry goes first: once the driver has freed the address, it may give it to another thread. Either kind
 * of free takes either kind of pointer. */
static CUresult give(struct freeing *freeing) {
    struct allocation entry, replaced = {0};
    if (!allocations_remove(part_of(freeing->address), freeing->address, &entry))
        return free_of_pool(freeing);
    CUresult result = freeing->attempt(freeing);
    if (result == CUDA_SUCCESS && freeing->late)
        end_late(&entry, freeing->stream);
    else if (result == CUDA_SUCCESS)
        end_entry(&entry);
    else if (allocations_insert(part_of(entry.address), entry, &replaced) && replaced.address != 0)
        end_entry(&replaced);
    return result;
}

static CUresult attempt_free(void *arguments) {
    struct freeing *freeing = arguments;
    return DRIVER(cuMemFree_v2, freeing->address);
}

CUresult hooked_cuMemFree_v2(CUdeviceptr address) {
    struct freeing freeing = {.attempt = attempt_free, .address = address};
    return give(&freeing);
}

static CUresult attempt_free_v1(void *arguments) {
    struct freeing *freeing = arguments;
    return DRIVER(cuMemFree, (uint32_t)freeing->address);
}

CUresult hooked_cuMemFree(uint32_t address) {
    struct freeing freeing = {.attempt = attempt_free_v1, .address = address};
    return give(&freeing);
}

static CUresult attempt_free_async(void *arguments) {
    struct freeing *freeing = arguments;
    return DRIVER(cuMemFreeAsync, freeing->address, freeing->stream);
}

CUresult hooked_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    struct freeing freeing = {
        .attempt = attempt_free_async, .address = address, .stream = stream, .late = true};
    return give(&freeing);
}

static CUresult attempt_free_async_ptsz(void *arguments) {
    struct freeing *freeing = arguments;
    return DRIVER(cuMemFreeAsync_ptsz, freeing->address, freeing->stream);
}

CUresult hooked_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    struct freeing freeing = {
        .attempt = attempt_free_async_ptsz, .address = address, .stream = stream, .late = true};
    return give(&freeing);
}

void memory_mark(CUcontext context) {
    for (int part = 0; part < PARTS; part++) allocations_mark(&live[part], (uint64_t)(uintptr_t)context);
    array_mark(context);
    graph_mark(context);
}

void memory_unmark(CUcontext context) {
    for (int part = 0; part < PARTS; part++) allocations_unmark(&live[part], (uint64_t)(uintptr_t)context);
    array_unmark(context);
    graph_unmark(context);
}

/* Of a context's memory, what each device gets back. */
static void add_charge(const struct allocation *entry, void *sizes) {
    if (entry->hidden) growth_show(entry->device, entry->size);
    ((uint64_t *)sizes)[entry->device] += end_charge(entry);
}

static void give_all(const uint64_t *sizes) {
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++)
        if (sizes[device] > 0) charge_give(device, sizes[device]);
}

void memory_synchronised(CUstream stream) {
    uint64_t sizes[CONVGPU_MAX_DEVICES] = {0};
    if (late_end(stream, add_charge, sizes)) give_all(sizes);
}

void memory_synchronised_all(void) {
    uint64_t sizes[CONVGPU_MAX_DEVICES] = {0};
    if (late_end_all(add_charge, sizes)) give_all(sizes);
}

/* Streams end with their context, so nothing stays late. */
void memory_drop(CUcontext context) {
    uint64_t sizes[CONVGPU_MAX_DEVICES] = {0};
    for (int part = 0; part < PARTS; part++)
        allocations_drop(&live[part], (uint64_t)(uintptr_t)context, add_charge, sizes);
    array_drop(context, sizes);
    give_all(sizes);
    memory_synchronised_all();
    graph_drop(context);
    for (int device = 0; device < (int)account_devices(); device++) pool_reclaim(device, false);
}

static void memory_reset(void) {
    for (int part = 0; part < PARTS; part++) allocations_reset(&live[part]);
    late_reset();
    pages_reset();
}
FORGET_IN_CHILD(memory_reset);
