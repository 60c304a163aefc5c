/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other processes, which stays counted where it was allocated, and of other programming interfaces,
 * which a machine without them cannot have.
 */
#include <string.h>

#include "libcuda/driver.h"
#include "libcuda/memory/array_api.h"
#include "simulated/lock.h"

#define IPC_MAGIC           UINT64_C(0x4350495550474743)
#define EXTERNAL_KINDS_LAST 9

/* What a CUipcMemHandle holds. */
struct ipc_handle {
    uint64_t magic;
    uint8_t uuid[16]; /* of the device */
    uint32_t pid;     /* with the next two the owner, as it knows itself */
    uint32_t pid_namespace;
    uint64_t start_time;
    uint64_t address; /* with the serial number the allocation */
    uint64_t size;
    uint64_t serial;
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "fills the handle");

static bool is_own(const struct ipc_handle *handle) {
    struct process_identity own = process_identity();
    return handle->pid == own.pid && handle->start_time == own.start_time &&
           handle->pid_namespace == (uint32_t)own.pid_namespace;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    const struct block *block = blocks_find(&driver.blocks, address);
    if (handle == NULL || block == NULL || block->kind != BLOCK_MEMORY) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    const struct context *context = block->owner;
    struct process_identity own = process_identity();
    struct ipc_handle content = {
        .magic = IPC_MAGIC,
        .pid = own.pid,
        .pid_namespace = (uint32_t)own.pid_namespace,
        .start_time = own.start_time,
        .address = address,
        .size = block->size,
        .serial = block->serial,
    };
    memcpy(content.uuid, driver.state.configuration.device[driver.row[context->device]].uuid,
           sizeof content.uuid);
    memcpy(handle->bytes, &content, sizeof content);
    return driver_leave(CUDA_SUCCESS);
}

/* Which process owns it, in one number: a pid has at most 22 bits. */
static uint64_t owner_of(const struct ipc_handle *handle) {
    return handle->start_time << 22 | handle->pid;
}

/* The block through which the context sees the allocation already, or NULL. */
static struct block *find_import(const struct context *context, const struct ipc_handle *handle) {
    struct block *block = context->imports;
    for (; block != NULL; block = block->next) {
        if (block->imported_serial == handle->serial && block->imported_from == owner_of(handle)) {
            return block;
        }
    }
    return NULL;
}

static CUresult open_import(struct context *context, const struct ipc_handle *handle, CUdeviceptr *address) {
    const uint8_t *uuid = driver.state.configuration.device[driver.row[context->device]].uuid;
    if (handle->magic != IPC_MAGIC) return CUDA_ERROR_INVALID_VALUE;
    if (is_own(handle)) return CUDA_ERROR_INVALID_CONTEXT;
    if (memcmp(handle->uuid, uuid, sizeof handle->uuid) != 0) return CUDA_ERROR_MAP_FAILED;
    struct block *block = find_import(context, handle);
    if (block == NULL) {
        block = blocks_add(&driver.blocks, handle->size, context, &context->imports);
        if (block == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
        block->kind = BLOCK_IMPORTED;
        block->counted = 0;
        block->references = 0;
        block->imported_serial = handle->serial;
        block->imported_from = owner_of(handle);
    }
    block->references++;
    *address = block->address;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct ipc_handle content;
    memcpy(&content, handle.bytes, sizeof content);
    return driver_leave(open_import(context, &content, address));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    struct context *context = NULL;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    struct block *block = blocks_find(&driver.blocks, address);
    if (block == NULL || block->kind != BLOCK_IMPORTED) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct context *owner = block->owner;
    if (--block->references == 0) blocks_remove(&driver.blocks, block, &owner->imports);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    bool valid = memory != NULL && descriptor != NULL && descriptor->type >= 1 &&
                 descriptor->type <= EXTERNAL_KINDS_LAST && descriptor->size != 0;
    /* No other interface is here that could have exported it: as driver 580.159 says of a descriptor that is
     * not one. */
    return driver_leave(valid ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    (void)memory; /* none was ever imported */
    CUresult result = driver_enter();
    return result != CUDA_SUCCESS ? result : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}
