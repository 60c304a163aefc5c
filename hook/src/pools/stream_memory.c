/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered allocations. On an H200 (driver 580.159) a pool grows by what it lacks, rounded up to 32
 * MiB, and joins unused pieces to serve a larger request. Memory freed in a stream that the asker's stream
 * does not wait for cannot be used again, so the growth is known only when the call has returned: before it,
 * a bound is charged. A pause holds the calling thread before the driver sees the call, so the order in the
 * stream is the order of the calls.
 */
#include "accounting/charge.h"
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "pools/host_pools.h"
#include "pools/pool.h"

enum { GROWTH = 32 << 20 };

/* One allocation; `attempt` calls the driver and writes `address`. The program's variable is written only
 * when everything has succeeded. */
struct stream_request {
    struct charge charge;
    charge_attempt *attempt;
    size_t size;
    CUdeviceptr address;
    CUmemoryPool pool; /* NULL: the current one of the stream's device */
    CUstream stream;
    CUdevice ordinal;
    size_t slot;
};

static uint64_t round_growth(uint64_t size) {
    return size > UINT64_MAX - GROWTH ? UINT64_MAX : (size + GROWTH - 1) / GROWTH * GROWTH;
}

/* Charges what the pool should grow by, if the headroom holds as much; *growth says how much that is. */
static bool stream_take_expected(struct stream_request *request, uint64_t *growth) {
    uint64_t unused = pool_unused(request->slot);
    *growth = request->size > unused ? round_growth(request->size - unused) : 0;
    return *growth == 0 || charge_try(&request->charge, *growth);
}

/* Charges a bound of the growth: generously while there is headroom, else as much as must be. */
static CUresult stream_charge_bound(struct stream_request *request) {
    uint64_t growth;
    int device = request->charge.device;
    request->charge.settling = 0;
    if (charge_try(&request->charge, round_growth(request->size)) || stream_take_expected(request, &growth))
        return CUDA_SUCCESS;
    pool_reclaim(device, false);
    if (stream_take_expected(request, &growth)) return CUDA_SUCCESS;
    pool_reclaim(device, true); /* what is trimmed must be grown again, so the growth is computed again */
    if (stream_take_expected(request, &growth)) return CUDA_SUCCESS;
    return charge_open(&request->charge, growth);
}

/* What the pool grew beyond the bound could not be had: as if the call had never been. Not freed in the
 * stream: the pool would keep what it grew until somebody synchronises. */
static CUresult stream_undo(struct stream_request *request) {
    struct allocation entry;
    bool entered = pool_remove(request->address, &entry);
    DRIVER(cuMemFree_v2, request->address);
    if (entered) pool_freed(&entry);
    pool_reclaim(request->charge.device, true);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Calls the driver; *answer is its own. From here on the charge is the pool's. */
static CUresult stream_attempt(struct stream_request *request, CUresult *answer) {
    struct charge extra = {.call = request->charge.call, .device = request->charge.device};
    uint64_t missing, bound = request->charge.size;
    pool_begin(request->slot, bound);
    *answer = charge_call_when_settled(&request->charge, request->attempt, request);
    bool succeeded = *answer == CUDA_SUCCESS;
    CUdeviceptr address = succeeded ? request->address : 0;
    CUresult entered = pool_end(request->slot, bound, address, request->size, &missing);
    growth_expect(extra.device, missing);
    if (missing > 0 && charge_open(&extra, missing) != CUDA_SUCCESS) {
        pool_uncharge(request->slot, missing);
        entered = CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = succeeded && entered != CUDA_SUCCESS ? stream_undo(request) : *answer;
    growth_expected(extra.device, missing);
    return result;
}

static CUresult stream_allocate_charged(struct stream_request *request) {
    int round = 0;
    CUresult answer, result = stream_charge_bound(request);
    if (result != CUDA_SUCCESS) return result;
    do result = stream_attempt(request, &answer);
    while (charge_again(&request->charge, answer, round++));
    return result;
}

/* The device of the stream: of its context, or of the thread's for the default streams (and for all of them
 * in a driver that cannot tell, which is older than pools). */
static CUresult stream_device(CUstream stream, CUdevice *ordinal) {
    CUcontext context;
    bool telling = driver.cuStreamGetDevice || driver.cuStreamGetCtx;
    if ((uintptr_t)stream <= CU_STREAM_PER_THREAD || !telling) return DRIVER(cuCtxGetDevice, ordinal);
    if (driver.cuStreamGetDevice) return DRIVER(cuStreamGetDevice, stream, ordinal);
    CUresult result = DRIVER(cuStreamGetCtx, stream, &context);
    if (result != CUDA_SUCCESS) return result;
    result = DRIVER(cuCtxPushCurrent_v2, context);
    if (result != CUDA_SUCCESS) return result;
    result = DRIVER(cuCtxGetDevice, ordinal);
    DRIVER(cuCtxPopCurrent_v2, &context);
    return result;
}

/* Not charged, but for its page tables. */
static CUresult stream_allocate_host(struct stream_request *request) {
    CUresult result = request->attempt(request);
    if (result != CUDA_SUCCESS) return result;
    result = host_pools_grown(request->pool, request->charge.call);
    if (result == CUDA_SUCCESS) return result;
    DRIVER(cuMemFree_v2, request->address);
    DRIVER(cuMemPoolTrimTo, request->pool, 0);
    return result;
}

/* What the driver refuses by itself is left to it: no context, no such stream. In a stream that is being
 * captured the call makes a node of a graph (graph.c) and takes nothing. */
static CUresult stream_allocate(struct stream_request *request) {
    int capturing = 0, here;
    CUcontext context;
    struct charge *charge = &request->charge;
    if (DRIVER(cuStreamIsCapturing, request->stream, &capturing) == CUDA_SUCCESS && capturing)
        return request->attempt(request);
    if (stream_device(request->stream, &request->ordinal) != CUDA_SUCCESS) return request->attempt(request);
    charge->device = device_of_ordinal(request->ordinal);
    if (!request->pool && DRIVER(cuDeviceGetMemPool, &request->pool, request->ordinal) != CUDA_SUCCESS)
        return request->attempt(request);
    CUresult result = pool_find(request->pool, &charge->device, &request->slot);
    if (result != CUDA_SUCCESS) {
        device_refuse(request->ordinal);
        return result;
    }
    if (charge->device == NOT_OF_A_DEVICE) return stream_allocate_host(request);
    charge->current = device_current(&context, &here) == CUDA_SUCCESS && here == charge->device;
    return stream_allocate_charged(request);
}

static CUresult stream_attempt_current(void *arguments) {
    struct stream_request *request = arguments;
    return DRIVER(cuMemAllocAsync, &request->address, request->size, request->stream);
}

static CUresult stream_attempt_pool(void *arguments) {
    struct stream_request *request = arguments;
    return DRIVER(cuMemAllocFromPoolAsync, &request->address, request->size, request->pool, request->stream);
}

/* The default stream of the twins is the thread's own: by its name it is the same to all forms of a call. */
static CUstream per_thread(CUstream stream) {
    return stream ? stream : (CUstream)CU_STREAM_PER_THREAD;
}

CUresult hooked_cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
    struct stream_request request = {
        .charge.call = "cuMemAllocAsync", .attempt = stream_attempt_current, .size = size, .stream = stream};
    CUresult result = stream_allocate(&request);
    if (result == CUDA_SUCCESS) *address = request.address;
    return result;
}

CUresult hooked_cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t size, CUstream stream) {
    return hooked_cuMemAllocAsync(address, size, per_thread(stream));
}

CUresult hooked_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool,
                                        CUstream stream) {
    struct stream_request request = {.charge.call = "cuMemAllocFromPoolAsync",
                                     .attempt = stream_attempt_pool,
                                     .size = size,
                                     .pool = pool,
                                     .stream = stream};
    CUresult result = stream_allocate(&request);
    if (result == CUDA_SUCCESS) *address = request.address;
    return result;
}

CUresult hooked_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t size, CUmemoryPool pool,
                                             CUstream stream) {
    return hooked_cuMemAllocFromPoolAsync(address, size, pool, per_thread(stream));
}
