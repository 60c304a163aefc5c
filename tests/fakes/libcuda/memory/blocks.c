/* SPDX-License-Identifier: Apache-2.0 */
#include "libcuda/memory/blocks.h"

#include <stdlib.h>

#define MIB        (UINT64_C(1) << 20)
#define LARGE      MIB /* from here on allocations take whole large pages */
#define LARGE_PAGE (2 * MIB)
#define SMALL_UNIT UINT64_C(512)
#define FIRST_BITS 10u

uint64_t blocks_counted(uint64_t size) {
    uint64_t unit = size >= LARGE ? LARGE_PAGE : SMALL_UNIT;
    return size > UINT64_MAX - unit ? 0 : (size + unit - 1) / unit * unit;
}

static size_t bucket_of(const struct blocks *blocks, uint64_t address) {
    /* Fibonacci hashing: addresses are multiples of large powers of two, so their low bits say nothing. */
    return (size_t)((address / SMALL_UNIT * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - blocks->bits));
}

static bool grow(struct blocks *blocks) {
    struct blocks larger = *blocks;
    larger.bits = blocks->bucket == NULL ? FIRST_BITS : blocks->bits + 1;
    larger.bucket = calloc((size_t)1 << larger.bits, sizeof *larger.bucket);
    if (larger.bucket == NULL) return false;
    size_t old = blocks->bucket == NULL ? 0 : (size_t)1 << blocks->bits;
    for (size_t i = 0; i < old; i++) {
        for (struct block *block = blocks->bucket[i], *next; block != NULL; block = next) {
            next = block->in_bucket;
            struct block **bucket = &larger.bucket[bucket_of(&larger, block->address)];
            block->in_bucket = *bucket;
            *bucket = block;
        }
    }
    free(blocks->bucket);
    blocks->bucket = larger.bucket;
    blocks->bits = larger.bits;
    return true;
}

struct block *blocks_take_range(struct blocks *blocks, uint64_t size) {
    unsigned order = 64 - (unsigned)__builtin_clzll(size - 1);
    struct block *block = blocks->spare[order];
    if (block != NULL) {
        blocks->spare[order] = block->in_bucket;
        return block;
    }
    block = malloc(sizeof *block);
    if (block == NULL) return NULL;
    uint64_t range = UINT64_C(1) << order;
    uint64_t alignment = range < LARGE_PAGE ? range : LARGE_PAGE;
    if (blocks->next_address == 0) blocks->next_address = BLOCKS_FIRST_ADDRESS;
    block->address = (blocks->next_address + alignment - 1) / alignment * alignment;
    block->order = order;
    blocks->next_address = block->address + range;
    return block;
}

void blocks_give_range(struct blocks *blocks, struct block *block) {
    block->in_bucket = blocks->spare[block->order];
    blocks->spare[block->order] = block;
}

static bool make_room(struct blocks *blocks) {
    bool full = blocks->bucket == NULL || blocks->count >= (size_t)1 << blocks->bits;
    return !full || grow(blocks);
}

static void insert(struct blocks *blocks, struct block *block, void *owner, struct block **head) {
    struct block **bucket = &blocks->bucket[bucket_of(blocks, block->address)];
    block->owner = owner;
    block->kind = BLOCK_MEMORY;
    block->pages = NULL;
    block->late = 0;
    block->chunk = NULL;
    block->low_range = NULL;
    block->exported = false;
    block->serial = ++blocks->last_serial;
    block->in_bucket = *bucket;
    *bucket = block;
    block->previous = NULL;
    block->next = *head;
    if (*head != NULL) (*head)->previous = block;
    *head = block;
    blocks->count++;
}

struct block *blocks_add(struct blocks *blocks, uint64_t size, void *owner, struct block **head) {
    if (!make_room(blocks)) return NULL;
    uint64_t counted = blocks_counted(size);
    struct block *block = blocks_take_range(blocks, counted);
    if (block == NULL) return NULL;
    block->size = size;
    block->counted = counted;
    insert(blocks, block, owner, head);
    return block;
}

struct block *blocks_add_at(struct blocks *blocks, uint64_t address, uint64_t size, void *owner,
                            struct block **head) {
    if (!make_room(blocks)) return NULL;
    struct block *block = malloc(sizeof *block);
    if (block == NULL) return NULL;
    *block = (struct block){.address = address, .size = size, .counted = size};
    insert(blocks, block, owner, head);
    return block;
}

struct block *blocks_find(struct blocks *blocks, uint64_t address) {
    if (blocks->bucket == NULL) return NULL;
    struct block *block = blocks->bucket[bucket_of(blocks, address)];
    for (; block != NULL; block = block->in_bucket) {
        blocks->steps++;
        if (block->address == address) return block;
    }
    return NULL;
}

struct block *blocks_containing(const struct blocks *blocks, uint64_t address) {
    size_t buckets = blocks->bucket == NULL ? 0 : (size_t)1 << blocks->bits;
    for (size_t i = 0; i < buckets; i++) {
        for (struct block *block = blocks->bucket[i]; block != NULL; block = block->in_bucket) {
            if (address >= block->address && address - block->address < block->size) return block;
        }
    }
    return NULL;
}

void blocks_remove(struct blocks *blocks, struct block *block, struct block **head) {
    struct block **link = &blocks->bucket[bucket_of(blocks, block->address)];
    for (; *link != block; link = &(*link)->in_bucket) blocks->steps++;
    *link = block->in_bucket;
    if (block->next != NULL) block->next->previous = block->previous;
    if (block->previous != NULL) {
        block->previous->next = block->next;
    } else {
        *head = block->next;
    }
    blocks->count--;
    if (block->order == 0) {
        free(block);
    } else {
        blocks_give_range(blocks, block);
    }
}
