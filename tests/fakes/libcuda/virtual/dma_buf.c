/* SPDX-License-Identifier: Apache-2.0
 *
 * A range of memory as a descriptor of a dma-buf, for devices of others. Whoever has the descriptor holds the
 * memory of each piece, or the allocation that it lies in, or the 2 MiB that a small one shares with others:
 * each lies as a message in a socket (share.c), which the kernel keeps and drops with the descriptor.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcuda/memory/arena.h"
#include "libcuda/virtual/virtual.h"
#include "simulated/exports.h"

#define HOST_PAGE  4096u
#define DMA_BUF    1 /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
#define PCIE       1 /* CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE */
#define PIECES_MAX 64

/* The pieces of the range, one after the other, of one device; 0 if it is not wholly mapped or there are too
 * many. */
static unsigned find_pieces(uint64_t address, uint64_t size, struct physical *pieces[PIECES_MAX]) {
    unsigned count = 0;
    for (uint64_t done = 0; done < size;) {
        const struct block *mapping = mapping_at(address + done);
        if (mapping == NULL || count == PIECES_MAX) return 0;
        pieces[count++] = mapping->owner;
        done = mapping->address + mapping->size - address;
    }
    for (unsigned i = 1; i < count; i++) {
        if (memcmp(&pieces[i]->properties, &pieces[0]->properties, sizeof pieces[0]->properties) != 0)
            return 0;
    }
    return count;
}

/* A reference to the allocation, or to what it lies in, or -1. */
static int refer_to(struct block *block) {
    const struct context *context = block->owner; /* a pool's, if it lies in a chunk of that */
    if (block->chunk != NULL) return arena_export(block->chunk) ? block->chunk->reference : -1;
    unsigned device = driver.row[context->device];
    if (!block->exported) block->row = export_enter(&driver.state, device, block->counted, &block->reference);
    block->exported = block->row != NOT_EXPORTED;
    return block->exported ? block->reference : -1;
}

/* A socket in which the reference waits, or -1. */
static int share_block(struct block *block) {
    int ends[2], reference = refer_to(block);
    if (reference < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    bool sent = descriptors_send(ends[1], "", 1, &reference, 1);
    close(ends[1]);
    if (sent) return ends[0];
    close(ends[0]);
    return -1;
}

static CUresult make(int *descriptor, uint64_t address, uint64_t size) {
    struct physical *pieces[PIECES_MAX];
    struct block *block = blocks_containing(&driver.blocks, address);
    bool linear = block != NULL && (block->kind == BLOCK_MEMORY || block->kind == BLOCK_POOL) &&
                  block->pages == NULL && size <= block->address + block->size - address;
    unsigned count = linear ? 0 : find_pieces(address, size, pieces);
    if (!linear && count == 0) return CUDA_ERROR_INVALID_VALUE;
    *descriptor = linear ? share_block(block) : physical_share(pieces, count);
    return *descriptor >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size, int type,
                                       unsigned long long flags) {
    struct context *context = NULL;
    int descriptor = -1;
    CUresult result = driver_enter_context(&context);
    if (result != CUDA_SUCCESS) return result;
    bool valid = handle != NULL && size != 0 && address % HOST_PAGE == 0 && size % HOST_PAGE == 0 &&
                 type == DMA_BUF && flags <= PCIE;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (flags == PCIE) return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    result = make(&descriptor, address, size);
    if (result == CUDA_SUCCESS) memcpy(handle, &descriptor, sizeof descriptor);
    return driver_leave(result);
}
