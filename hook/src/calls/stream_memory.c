/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered allocations. On an H200 (driver 580.159) a pool grows by what it lacks, rounded up to 32
 * MiB, and joins unused pieces to serve a larger request. Memory freed in a stream that the asker's stream
 * does not wait for cannot be used again, so the growth is known only when the call has returned: before it,
 * a bound is charged. A pause holds the calling thread before the driver sees the call, so the order in the
 * stream is the order of the calls.
 */
#include "accounting/charge.h"
#include "accounting/device.h"
#include "calls/pool.h"
#include "scheduler/session.h"

enum { GROWTH = 32 << 20 };

/* One call on its way. */
struct pool_taking {
    const char *call;
    charge_attempt *attempt;
    size_t size;
    CUdeviceptr address;
    CUdeviceptr *asked_address; /* where the driver writes: `address`, or the program's NULL */
    CUmemoryPool pool;          /* NULL: the current one of the stream's device */
    CUstream stream;
    CUdevice ordinal;
    int device;
    bool current; /* the calling thread's context is on the device */
    size_t slot;
    uint64_t charge;
};

static uint64_t round_growth(uint64_t size) {
    return size > UINT64_MAX - GROWTH ? UINT64_MAX : (size + GROWTH - 1) / GROWTH * GROWTH;
}

/* Charges what the pool should grow by, if all that is unused in it can be used. */
static bool take_expected(struct pool_taking *taking) {
    uint64_t unused = pool_unused(taking->slot);
    taking->charge = taking->size > unused ? round_growth(taking->size - unused) : 0;
    return taking->charge == 0 || charge_try(taking->device, taking->charge, taking->call);
}
/* Charges a bound of the growth: generously while there is headroom, else as much as must be. */
static CUresult take_bound(struct pool_taking *taking, uint64_t *settling) {
    *settling = 0;
    taking->charge = round_growth(taking->size);
    if (charge_try(taking->device, taking->charge, taking->call) || take_expected(taking))
        return CUDA_SUCCESS;
    pool_reclaim(taking->device, false);
    if (take_expected(taking)) return CUDA_SUCCESS;
    pool_reclaim(taking->device, true); /* what is trimmed must be grown again, so look again */
    if (take_expected(taking)) return CUDA_SUCCESS;
    return charge_take(taking->device, taking->charge, taking->call, settling);
}

/* What the pool grew beyond the bound could not be had: as if the call had never been. Not freed in the
 * stream: the pool would keep what it grew until somebody synchronises. */
static CUresult undo(struct pool_taking *taking) {
    struct allocation entry;
    bool entered = pool_remove(taking->address, &entry);
    DRIVER(cuMemFree_v2, taking->address);
    if (entered) pool_freed(&entry);
    pool_reclaim(taking->device, true);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* *word: the driver's. */
static CUresult make(struct pool_taking *taking, uint64_t settling, CUresult *word) {
    uint64_t missing;
    pool_begin(taking->slot, taking->charge);
    *word = charge_settle(taking->device, taking->charge, settling, taking->current, taking->attempt, taking);
    bool succeeded = *word == CUDA_SUCCESS;
    CUresult kept = pool_end(taking->slot, taking->charge, succeeded ? taking->address : 0, &missing);
    if (missing > 0 && charge_take(taking->device, missing, taking->call, &settling) != CUDA_SUCCESS) {
        pool_uncharge(taking->slot, missing);
        kept = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return succeeded && kept != CUDA_SUCCESS ? undo(taking) : *word;
}

static CUresult take_charged(struct pool_taking *taking) {
    uint64_t settling;
    int round = 0;
    CUresult word, result = take_bound(taking, &settling);
    if (result != CUDA_SUCCESS) return result;
    do result = make(taking, settling, &word);
    while (charge_again(taking->device, taking->charge, taking->call, taking->current, word, round++,
                        &settling));
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

/* What the driver refuses by itself is left to it: no context, no such stream. In a stream that is being
 * captured the call makes a node of a graph (graph.c) and takes nothing. */
static CUresult take(struct pool_taking *taking) {
    int capturing = 0, here;
    CUcontext context;
    if (!taking->asked_address || taking->size == 0) return taking->attempt(taking);
    if (!session_ready()) return CUDA_ERROR_SYSTEM_NOT_READY;
    if (DRIVER(cuStreamIsCapturing, taking->stream, &capturing) == CUDA_SUCCESS && capturing)
        return taking->attempt(taking);
    if (stream_device(taking->stream, &taking->ordinal) != CUDA_SUCCESS) return taking->attempt(taking);
    taking->device = device_of_ordinal(taking->ordinal);
    if (!taking->pool && DRIVER(cuDeviceGetMemPool, &taking->pool, taking->ordinal) != CUDA_SUCCESS)
        return taking->attempt(taking);
    CUresult result = pool_find(taking->pool, &taking->device, &taking->slot);
    if (result != CUDA_SUCCESS) {
        device_refuse(taking->ordinal);
        return result;
    }
    if (taking->device == NOT_OF_A_DEVICE) return taking->attempt(taking);
    taking->current = device_current(&context, &here) == CUDA_SUCCESS && here == taking->device;
    return take_charged(taking);
}

static CUresult attempt_current(void *arguments) {
    struct pool_taking *taking = arguments;
    return DRIVER(cuMemAllocAsync, taking->asked_address, taking->size, taking->stream);
}

static CUresult attempt_pool(void *arguments) {
    struct pool_taking *taking = arguments;
    return DRIVER(cuMemAllocFromPoolAsync, taking->asked_address, taking->size, taking->pool, taking->stream);
}

/* `asked_address` is a variable of ours: the program's is written only when everything has succeeded. */
static CUresult allocate(struct pool_taking *taking, CUdeviceptr *address) {
    taking->asked_address = address ? &taking->address : NULL;
    CUresult result = take(taking);
    if (result == CUDA_SUCCESS) *address = taking->address;
    return result;
}

/* The default stream of the twins is the thread's own: by its name it is the same to all forms of a call. */
static CUstream per_thread(CUstream stream) {
    return stream ? stream : (CUstream)CU_STREAM_PER_THREAD;
}

CUresult hooked_cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
    struct pool_taking taking = {
        .call = "cuMemAllocAsync", .attempt = attempt_current, .size = size, .stream = stream};
    return allocate(&taking, address);
}

CUresult hooked_cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t size, CUstream stream) {
    return hooked_cuMemAllocAsync(address, size, per_thread(stream));
}

CUresult hooked_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool,
                                        CUstream stream) {
    struct pool_taking taking = {.call = "cuMemAllocFromPoolAsync",
                                 .attempt = attempt_pool,
                                 .size = size,
                                 .pool = pool,
                                 .stream = stream};
    if (!pool) return DRIVER(cuMemAllocFromPoolAsync, address, size, pool, stream);
    return allocate(&taking, address);
}

CUresult hooked_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t size, CUmemoryPool pool,
                                             CUstream stream) {
    return hooked_cuMemAllocFromPoolAsync(address, size, pool, per_thread(stream));
}
