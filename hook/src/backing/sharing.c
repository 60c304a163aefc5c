/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls by which a program lets others hold its memory or addresses, and peers.
 */
#include "backing/sharing.h"

#include "accounting/device.h"
#include "accounting/headroom.h"
#include "backing/pieces.h"
#include "backing/ranges.h"
#include "base/fork_reset.h"
#include "base/log.h"
#include "exports/beside.h"
#include "exports/descriptors.h"
#include "exports/told.h"
#include "gate/gate.h"
#include "scheduler/account.h"
#include "tables/registry.h"

#include <stdatomic.h>
#include <unistd.h>

enum { DMA_BUF = 1 };

static _Atomic bool warned; /* the line about memory handles was printed */

/* Whether a range is there that can leave; then its device and size. */
static bool find_movable(CUdeviceptr address, int *device, uint64_t *size) {
    if (ranges_is_empty()) return false;
    ranges_lock();
    const struct range *range = ranges_at(address);
    bool movable = range && !range->fixed;
    if (movable) {
        *device = range->device;
        *size = range->size;
    }
    ranges_unlock();
    return movable;
}

/* Of two threads, or after a free, the fixed memory is not needed twice. */
static bool set_fixed(CUdeviceptr address, uint64_t size) {
    ranges_lock();
    struct range *range = ranges_at(address);
    bool set = range && !range->fixed && range->size == size;
    if (set) range->fixed = true;
    ranges_unlock();
    return set;
}

CUresult sharing_fix(CUdeviceptr address, const char *call) {
    uint64_t size;
    int device;
    if (!gate_takes_part() || !find_movable(address, &device, &size)) return CUDA_SUCCESS;
    if (headroom_fix(call, device, size) != CUDA_SUCCESS) return CUDA_ERROR_NOT_SUPPORTED;
    bool set = gate_enter_memory(); /* what is out comes back before the gate opens */
    if (set) {
        set = set_fixed(address, size);
        gate_leave();
    }
    if (!set) account_give_fixed((uint32_t)device, size);
    return CUDA_SUCCESS;
}

bool sharing_is_backed(CUdeviceptr address) {
    if (ranges_is_empty()) return false;
    ranges_lock();
    bool backed = ranges_at(address) != NULL;
    ranges_unlock();
    return backed;
}

/* The driver has no such handle for memory of this kind (CUDA_ERROR_INVALID_VALUE), which tells nobody why.
 */
CUresult hooked_cuIpcGetMemHandle(void *handle, CUdeviceptr address) {
    uint64_t size;
    int device;
    if (!handle || !gate_takes_part() || !find_movable(address, &device, &size))
        return DRIVER(cuIpcGetMemHandle, handle, address);
    if (!atomic_exchange(&warned, true))
        log_refusal(
            "cuIpcGetMemHandle: memory that can be suspended cannot be shared with another process this "
            "way. Start the container with suspend=no.");
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult hooked_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size, int type,
                                              unsigned long long flags) {
    struct charge beside = {.call = "cuMemGetHandleForAddressRange"};
    CUresult result = sharing_fix(address, beside.call);
    bool charged = registry_mark_shared(address, size);
    if (result == CUDA_SUCCESS && type == DMA_BUF && !charged)
        result = beside_open(&beside, address, size); /* which may pause: not between begin and end */
    if (result != CUDA_SUCCESS) return result;
    descriptors_begin();
    uint64_t expected = type == DMA_BUF ? told_expect(device_of_pointer(address), UINT64_MAX) : 0;
    if (registry_mark_shared(address, size) != charged) /* another thread has other memory there now */
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = DRIVER(cuMemGetHandleForAddressRange, handle, address, size, type, flags);
    if (result == CUDA_SUCCESS && type == DMA_BUF &&
        !(registry_share(address, size, *(int *)handle) && beside_keep(&beside, *(int *)handle))) {
        close(*(int *)handle);
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    told_expected(expected);
    descriptors_end();
    descriptors_start();
    if (beside.size > 0) charge_close(&beside);
    return result;
}

CUresult hooked_cuMulticastBindAddr(uint64_t object, size_t offset, CUdeviceptr address, size_t size,
                                    unsigned long long flags) {
    CUresult result = sharing_fix(address, "cuMulticastBindAddr");
    return result != CUDA_SUCCESS ? result
                                  : DRIVER(cuMulticastBindAddr, object, offset, address, size, flags);
}

CUresult hooked_cuMulticastBindAddr_v2(uint64_t object, CUdevice device, size_t offset, CUdeviceptr address,
                                       size_t size, unsigned long long flags) {
    CUresult result = sharing_fix(address, "cuMulticastBindAddr");
    return result != CUDA_SUCCESS
               ? result
               : DRIVER(cuMulticastBindAddr_v2, object, device, offset, address, size, flags);
}

/* Lets a device reach, or not reach any more, what is there of another device's ranges. */
static void share_ranges(CUdevice ordinal, CUdevice peer, bool open) {
    uint64_t size;
    ranges_lock();
    for (struct range *range = ranges_after(0); range; range = ranges_after(range->address))
        for (uint32_t index = 0; range->ordinal == ordinal && index < range_pieces(range); index++) {
            uint64_t piece = range_piece(range, index, &size);
            if (!range_is_out(range, index)) (void)pieces_share(peer, piece, size, open);
        }
    ranges_unlock();
}

/* The current context's device, and that of the other one. */
static bool find_devices(CUcontext context, CUdevice *own, CUdevice *other) {
    CUcontext popped;
    if (DRIVER(cuCtxGetDevice, own) != CUDA_SUCCESS) return false;
    if (DRIVER(cuCtxPushCurrent_v2, context) != CUDA_SUCCESS) return false;
    CUresult result = DRIVER(cuCtxGetDevice, other);
    DRIVER(cuCtxPopCurrent_v2, &popped);
    return result == CUDA_SUCCESS && *own != *other;
}

CUresult hooked_cuCtxEnablePeerAccess(CUcontext context, unsigned flags) {
    CUdevice own, other;
    CUresult result = DRIVER(cuCtxEnablePeerAccess, context, flags);
    if (result != CUDA_SUCCESS || !gate_takes_part() || !find_devices(context, &own, &other)) return result;
    if (pieces_add_peer(other, own)) share_ranges(other, own, true);
    return result;
}

CUresult hooked_cuCtxDisablePeerAccess(CUcontext context) {
    CUdevice own, other;
    CUresult result = DRIVER(cuCtxDisablePeerAccess, context);
    if (result != CUDA_SUCCESS || !gate_takes_part() || !find_devices(context, &own, &other)) return result;
    if (pieces_remove_peer(other, own)) share_ranges(other, own, false);
    return result;
}

static void sharing_reset(void) {
    warned = false;
}
RESET_IN_CHILD(sharing_reset);
