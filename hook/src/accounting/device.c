/* SPDX-License-Identifier: Apache-2.0 */
#include "accounting/device.h"

#include "accounting/allocations.h"
#include "base/log.h"
#include "scheduler/account.h"
#include "tables/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MAX_ORDINALS = 64, POINTER_ORDINAL = 9 /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */ };

static struct allocations owners =
    ALLOCATIONS_INITIALIZER; /* contexts of green ones, which die with the primary */

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct allocations changes = ALLOCATIONS_INITIALIZER; /* by handle; `value`: the epoch of the last */
static _Atomic bool changes_are_lost;                        /* there was no memory for one */

/* Number + 1 of each ordinal once it is known; 0 before. */
static _Atomic int known[MAX_ORDINALS];
static _Atomic uint64_t warned; /* bit N: the line about ordinal N was printed */
_Atomic uint32_t device_epoch = 1;

/* What this thread found last, valid while `device_epoch` is the same. */
static _Thread_local struct {
    uint32_t epoch;
    int device;
    CUcontext context, owner;
} last __attribute__((tls_model("initial-exec")));

/* The v2 call (CUDA 11.4) names an instance (MIG) by its own UUID, the first one only the card: an instance's
 * memory must not be taken for its card's, of which the scheduler knows nothing then. */
static int device_find_by_uuid(CUdevice ordinal) {
    CUuuid uuid;
    CUresult result = driver.cuDeviceGetUuid_v2 ? DRIVER(cuDeviceGetUuid_v2, &uuid, ordinal)
                                                : DRIVER(cuDeviceGetUuid, &uuid, ordinal);
    return result == CUDA_SUCCESS ? account_find((const uint8_t *)uuid.bytes) : DEVICE_UNKNOWN;
}

static bool is_instance(CUdevice ordinal) {
    CUuuid own, card;
    return DRIVER(cuDeviceGetUuid_v2, &own, ordinal) == CUDA_SUCCESS &&
           DRIVER(cuDeviceGetUuid, &card, ordinal) == CUDA_SUCCESS && memcmp(&own, &card, sizeof own) != 0;
}

int device_of_ordinal(CUdevice ordinal) {
    if (ordinal < 0 || ordinal >= MAX_ORDINALS) return device_find_by_uuid(ordinal);
    int device = known[ordinal] - 1;
    if (device < 0) {
        device = device_find_by_uuid(ordinal);
        if (device >= 0) known[ordinal] = device + 1;
    }
    return device;
}

static CUcontext device_find_owner(CUcontext context) {
    struct allocation entry;
    bool green = allocations_find(&owners, (uint64_t)(uintptr_t)context, &entry);
    return green ? (CUcontext)(uintptr_t)(entry.context << 1) : context;
}

int device_of_pointer(CUdeviceptr address) {
    int ordinal;
    CUresult result = DRIVER(cuPointerGetAttribute, &ordinal, POINTER_ORDINAL, address);
    return result == CUDA_SUCCESS ? device_of_ordinal(ordinal) : DEVICE_UNKNOWN;
}

CUresult device_current(CUcontext *context, int *device) {
    CUresult result = DRIVER(cuCtxGetCurrent, context);
    if (result != CUDA_SUCCESS) return result;
    if (!*context) return CUDA_ERROR_INVALID_CONTEXT;
    uint32_t now = atomic_load_explicit(&device_epoch, memory_order_acquire);
    if (last.epoch == now && last.context == *context) {
        *device = last.device;
        *context = last.owner;
        return CUDA_SUCCESS;
    }
    CUdevice ordinal;
    result = DRIVER(cuCtxGetDevice, &ordinal);
    if (result != CUDA_SUCCESS) return result;
    *device = device_of_ordinal(ordinal);
    if (*device < 0) {
        device_refuse(ordinal);
        return CUDA_SUCCESS;
    }
    last.epoch = now;
    last.context = *context;
    last.owner = *context = device_find_owner(*context);
    last.device = *device;
    return CUDA_SUCCESS;
}

/* A handle may name another one now. */
static void device_contexts_changed(void) {
    atomic_fetch_add(&device_epoch, 1);
}

void device_set_owner(CUcontext context, CUcontext owner) {
    struct allocation replaced,
        entry = {.address = (uint64_t)(uintptr_t)context, .context = (uint64_t)(uintptr_t)owner >> 1};
    (void)allocations_insert(&owners, entry, &replaced);
    device_contexts_changed();
}

void device_forget_owner(CUcontext context) {
    struct allocation removed;
    (void)allocations_remove(&owners, (uint64_t)(uintptr_t)context, &removed);
    device_contexts_changed();
}

/* Who asks before the epoch is entered, is told of the change as well. */
void device_context_changed(CUcontext context) {
    struct allocation entry = {.address = (uint64_t)(uintptr_t)context, .value = UINT64_MAX}, replaced;
    pthread_mutex_lock(&changing);
    bool entered = allocations_insert(&changes, entry, &replaced);
    entry.value = (uint64_t)atomic_fetch_add(&device_epoch, 1) + 1;
    if (!entered || !allocations_insert(&changes, entry, &replaced)) changes_are_lost = true;
    pthread_mutex_unlock(&changing);
}

bool device_has_changed(CUcontext context, uint32_t since) {
    struct allocation entry;
    bool found = allocations_find(&changes, (uint64_t)(uintptr_t)context, &entry);
    return changes_are_lost || (found && entry.value > since);
}

bool device_push(CUcontext context) {
    CUcontext now = NULL;
    if (!context || DRIVER(cuCtxGetCurrent, &now) != CUDA_SUCCESS || now == context) return false;
    return DRIVER(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
}

void device_pop(bool pushed) {
    CUcontext popped;
    if (pushed) DRIVER(cuCtxPopCurrent_v2, &popped);
}

void device_refuse(CUdevice ordinal) {
    uint64_t bit = ordinal >= 0 && ordinal < MAX_ORDINALS ? UINT64_C(1) << ordinal : 0;
    if (bit && atomic_fetch_or(&warned, bit) & bit) return;
    if (is_instance(ordinal))
        log_refusal(
            "device %d is an instance of a GPU in MIG mode, and convgpu shares whole GPUs: memory on it is "
            "rejected. Use another GPU, or let the administrator run nvidia-smi -mig 0.",
            ordinal);
    else
        log_refusal("device %d is not one of this container's GPUs: memory on it is rejected. Name it in the "
                    "volume's option `gpus`.",
                    ordinal);
}

static void device_reset(void) {
    memset((void *)known, 0, sizeof known);
    warned = 0;
    device_epoch++;
    allocations_reset(&owners);
    allocations_reset(&changes);
    changing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    changes_are_lost = true; /* of the parent's */
}

static void device_mark(CUcontext context) {
    allocations_mark(&owners, (uint64_t)(uintptr_t)context);
}

static void device_unmark(CUcontext context) {
    allocations_unmark(&owners, (uint64_t)(uintptr_t)context);
}

/* The handles of green contexts of a primary one that has ended may name others from now on. */
static void device_drop(CUcontext context, uint64_t *sizes) {
    (void)sizes;
    allocations_drop(&owners, (uint64_t)(uintptr_t)context, NULL, NULL);
    device_contexts_changed();
}
REGISTER_FAMILY(device, .mark = device_mark, .unmark = device_unmark, .drop = device_drop,
                .reset = device_reset);
