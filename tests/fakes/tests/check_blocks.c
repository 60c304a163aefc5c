/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds a million live blocks, frees them in another order and adds them again, and counts the links that
 * blocks.c followed: constant work per operation, and addresses that are unique, aligned and used again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "libcuda/memory/blocks.h"

#define COUNT          1000000u
#define STEPS_PER_FIND 4u /* expected about 1.5 at a load of one block per bucket */

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (condition) break;                                                                                \
        fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                            \
        exit(1);                                                                                             \
    } while (0)

static const uint64_t sizes[] = {1, 512, 513, 4096, 1u << 20, (2u << 20) + 1, UINT64_C(3) << 30};
#define SIZES (sizeof sizes / sizeof *sizes)

static uint64_t address[COUNT];

static void add_all(struct blocks *blocks, struct block **head) {
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t size = sizes[i % SIZES];
        struct block *block = blocks_add(blocks, size, NULL, head);
        CHECK(block != NULL && block->size == size && block->counted >= size);
        CHECK(block->address >= BLOCKS_FIRST_ADDRESS);
        CHECK(block->address % (size >= 1u << 20 ? 2u << 20 : 512u) == 0);
        address[i] = block->address;
    }
    CHECK(blocks->count == COUNT);
}

static void remove_all(struct blocks *blocks, struct block **head) {
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t one = address[(i * 7919) % COUNT]; /* coprime, so every block once, scattered */
        struct block *block = blocks_find(blocks, one);
        CHECK(block != NULL && block->address == one);
        blocks_remove(blocks, block, head);
        CHECK(blocks_find(blocks, one) == NULL);
    }
    CHECK(blocks->count == 0 && *head == NULL);
}

static void check_ranges_are_apart(const struct block *head) {
    for (const struct block *block = head; block != NULL && block->next != NULL; block = block->next) {
        /* Newest first, from one growing range: each lies wholly above the next. */
        CHECK(block->address >= block->next->address + block->next->counted);
    }
}

int main(void) {
    struct blocks blocks = {0};
    struct block *head = NULL;
    CHECK(blocks_counted(1) == 512 && blocks_counted(513) == 1024);
    CHECK(blocks_counted((1u << 20) - 1) == 1u << 20 && blocks_counted(1u << 20) == 2u << 20);
    CHECK(blocks_counted(UINT64_MAX) == 0);
    CHECK(blocks_find(&blocks, BLOCKS_FIRST_ADDRESS) == NULL);
    add_all(&blocks, &head);
    check_ranges_are_apart(head);
    remove_all(&blocks, &head);
    uint64_t end = blocks.next_address;
    add_all(&blocks, &head);
    CHECK(blocks.next_address == end); /* only addresses that were there before */
    remove_all(&blocks, &head);
    printf("steps %llu\n", (unsigned long long)blocks.steps);
    CHECK(blocks.steps < (uint64_t)COUNT * 2 * 2 * STEPS_PER_FIND);
    return 0;
}
