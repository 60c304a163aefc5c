/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include "account.h"
#include "allocations.h"
#include "array.h"
#include "charge.h"
#include "device.h"
#include "graph.h"
#include "pool.h"
#include "session.h"

enum { PITCH_STEP = 512 };

static struct allocations live = ALLOCATIONS_INITIALIZER;

/* One call on its way; `attempt` makes it and writes `address` and `pitch`. The program's own variables are
 * written only when everything has succeeded. */
struct taking {
    const char *call;
    charge_attempt *attempt;
    uint64_t charge;
    CUdeviceptr address;
    size_t size, width, height, pitch;
    unsigned option; /* element size or flags */
};

/* Charges the difference between the pitch that was guessed and the one that the driver chose. */
static CUresult correct_pitch(int device, struct taking *taking) {
    uint64_t bytes, settling;
    if (taking->pitch == 0) return CUDA_SUCCESS;
    if (__builtin_mul_overflow((uint64_t)taking->pitch, (uint64_t)taking->height, &bytes)) bytes = UINT64_MAX;
    uint64_t charge = charge_round(bytes);
    if (charge > taking->charge) {
        CUresult result = charge_take(device, charge - taking->charge, taking->call, &settling);
        if (result != CUDA_SUCCESS) return result;
    } else {
        charge_give(device, taking->charge - charge);
    }
    taking->charge = charge;
    return CUDA_SUCCESS;
}

/* Enters what the driver gave, or gives it back to the driver. */
static CUresult keep(int device, CUcontext context, struct taking *taking) {
    struct allocation replaced = {0};
    CUresult result = correct_pitch(device, taking);
    struct allocation entry = {.address = taking->address,
                               .size = taking->charge,
                               .device = (uint64_t)device,
                               .context = (uint64_t)(uintptr_t)context >> 1};
    if (result == CUDA_SUCCESS && !allocations_insert(&live, entry, &replaced))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) DRIVER(cuMemFree_v2, taking->address);
    if (replaced.address != 0) charge_give((int)replaced.device, replaced.size);
    return result;
}

static CUresult take(struct taking *taking) {
    CUcontext context;
    int device;
    uint64_t settling;
    if (!session_ready()) return CUDA_ERROR_SYSTEM_NOT_READY;
    if (device_current(&context, &device) != CUDA_SUCCESS) return taking->attempt(taking); /* its own error */
    if (device < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = charge_take(device, taking->charge, taking->call, &settling);
    if (result != CUDA_SUCCESS) return result;
    result = charge_settle(device, taking->charge, settling, true, taking->attempt, taking);
    if (result == CUDA_SUCCESS) result = keep(device, context, taking);
    if (result != CUDA_SUCCESS) charge_give(device, taking->charge);
    return result;
}

static CUresult attempt_linear(void *arguments) {
    struct taking *taking = arguments;
    return DRIVER(cuMemAlloc_v2, &taking->address, taking->size);
}

CUresult hooked_cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    if (!address || size == 0) return DRIVER(cuMemAlloc_v2, address, size);
    struct taking taking = {
        .call = "cuMemAlloc", .attempt = attempt_linear, .charge = charge_round(size), .size = size};
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
    struct taking taking = {
        .call = "cuMemAlloc", .attempt = attempt_linear_v1, .charge = charge_round(size), .size = size};
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
                            .charge = charge_round(size),
                            .size = size,
                            .option = flags};
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
static uint64_t guess_pitch_charge(size_t width, size_t height) {
    uint64_t bytes;
    if (width > UINT64_MAX - PITCH_STEP) return UINT64_MAX;
    uint64_t row = (width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP;
    return __builtin_mul_overflow(row, (uint64_t)height, &bytes) ? UINT64_MAX : charge_round(bytes);
}

CUresult hooked_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                   unsigned element) {
    if (!address || !pitch || width == 0 || height == 0)
        return DRIVER(cuMemAllocPitch_v2, address, pitch, width, height, element);
    struct taking taking = {.call = "cuMemAllocPitch",
                            .attempt = attempt_pitch,
                            .charge = guess_pitch_charge(width, height),
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
                            .charge = guess_pitch_charge(width, height),
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
};

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
    struct allocation entry, replaced;
    if (!allocations_remove(&live, freeing->address, &entry)) return free_of_pool(freeing);
    CUresult result = freeing->attempt(freeing);
    if (result == CUDA_SUCCESS) {
        charge_give((int)entry.device, entry.size);
    } else if (allocations_insert(&live, entry, &replaced) && replaced.address != 0) {
        charge_give((int)replaced.device, replaced.size);
    }
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
    struct freeing freeing = {.attempt = attempt_free_async, .address = address, .stream = stream};
    return give(&freeing);
}

static CUresult attempt_free_async_ptsz(void *arguments) {
    struct freeing *freeing = arguments;
    return DRIVER(cuMemFreeAsync_ptsz, freeing->address, freeing->stream);
}

CUresult hooked_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    struct freeing freeing = {.attempt = attempt_free_async_ptsz, .address = address, .stream = stream};
    return give(&freeing);
}

void memory_mark(CUcontext context) {
    allocations_mark(&live, (uint64_t)(uintptr_t)context);
    array_mark(context);
    graph_mark(context);
}

void memory_unmark(CUcontext context) {
    allocations_unmark(&live, (uint64_t)(uintptr_t)context);
    array_unmark(context);
    graph_unmark(context);
}

void memory_drop(CUcontext context) {
    uint64_t sizes[CONVGPU_MAX_DEVICES] = {0};
    allocations_drop(&live, (uint64_t)(uintptr_t)context, sizes);
    array_drop(context, sizes);
    for (int device = 0; device < (int)CONVGPU_MAX_DEVICES; device++)
        if (sizes[device] > 0) charge_give(device, sizes[device]);
    graph_drop(context);
    for (int device = 0; device < (int)account_devices(); device++) pool_reclaim(device, false);
}

void memory_reset(void) {
    allocations_reset(&live);
}
