/* SPDX-License-Identifier: Apache-2.0
 *
 * What operations touch, and what they do to it. driver.mutex held, everywhere.
 */
#include "libcuda/work/operation.h"

#include <stdlib.h>
#include <string.h>

#include "libcuda/work/contents.h"
#include "simulated/state.h"

#define WORD   sizeof(uint64_t)
#define WORDS  (UINT64_C(1) << 17) /* that are worked on at a time */
#define RANGES 2

struct range {
    uint64_t address, size;
};

static struct range layers_of(uint64_t address, uint64_t pitch, uint64_t layer,
                              const struct operation *operation) {
    return (struct range){address,
                          (operation->layers - 1) * layer + (operation->rows - 1) * pitch + operation->size};
}

/* The ranges of devices that it touches; returns how many. */
static unsigned ranges_of(const struct operation *operation, struct range range[RANGES]) {
    unsigned count = 0;
    const uint64_t *argument = operation->argument;
    bool moves = operation->kind == OPERATION_COPY || operation->kind == OPERATION_FILL;
    if (moves && operation->size * operation->rows * operation->layers != 0) {
        if (operation->to_device)
            range[count++] = layers_of(operation->to, operation->to_pitch, operation->to_layer, operation);
        if (operation->from_device)
            range[count++] =
                layers_of(operation->from, operation->from_pitch, operation->from_layer, operation);
    } else if (operation->kind == OPERATION_KERNEL) {
        bool words = operation->kernel == KERNEL_FILL || operation->kernel == KERNEL_CHECK ||
                     operation->kernel == KERNEL_ADD;
        if (words) range[count++] = (struct range){argument[0], argument[1] * WORD};
        if (operation->kernel == KERNEL_CHECK) range[count++] = (struct range){argument[3], WORD};
    }
    return count;
}

bool operation_can(const struct operation *operation) {
    struct range range[RANGES];
    unsigned count = ranges_of(operation, range);
    bool can = true;
    for (unsigned i = 0; i < count; i++) can = can && contents_present(range[i].address, range[i].size);
    return can;
}

bool operation_touches(const struct operation *operation, uint64_t address, uint64_t size) {
    struct range range[RANGES];
    unsigned count = ranges_of(operation, range);
    for (unsigned i = 0; i < count; i++) {
        if (range[i].address < address + size && address < range[i].address + range[i].size) return true;
    }
    return false;
}

static bool copy_row(uint64_t to, uint64_t from, const struct operation *operation) {
    if (operation->to_device && operation->from_device) return contents_move(to, from, operation->size);
    if (operation->to_device) return contents_write(to, (const void *)(uintptr_t)from, operation->size);
    if (operation->from_device) return contents_read(from, (void *)(uintptr_t)to, operation->size);
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, operation->size);
    return true;
}

static bool move(const struct operation *operation) {
    bool done = true;
    for (uint64_t index = 0; done && index < operation->rows * operation->layers; index++) {
        uint64_t row = index % operation->rows, layer = index / operation->rows;
        uint64_t to = operation->to + layer * operation->to_layer + row * operation->to_pitch;
        uint64_t from = operation->from + layer * operation->from_layer + row * operation->from_pitch;
        if (operation->kind == OPERATION_FILL) {
            done = contents_fill(to, operation->pattern, operation->step, operation->size);
        } else {
            done = copy_row(to, from, operation);
        }
    }
    return done;
}

/* What a kernel makes of words; returns how many are wrong. */
static uint64_t work_on(const struct operation *operation, uint64_t first, uint64_t *word, uint64_t count) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t wanted = kernel_word(operation->argument[2], first + i);
        if (operation->kernel == KERNEL_FILL) word[i] = wanted;
        if (operation->kernel == KERNEL_ADD) word[i] += operation->argument[2];
        wrong += operation->kernel == KERNEL_CHECK && word[i] != wanted;
    }
    return wrong;
}

static bool add_result(uint64_t address, uint64_t wrong) {
    uint64_t sum = 0;
    if (!contents_read(address, &sum, sizeof sum)) return false;
    sum += wrong;
    return contents_write(address, &sum, sizeof sum);
}

static bool run_kernel(const struct operation *operation) {
    bool writes = operation->kernel == KERNEL_FILL || operation->kernel == KERNEL_ADD;
    if (!writes && operation->kernel != KERNEL_CHECK) return true;
    uint64_t *word = malloc(WORDS * WORD), wrong = 0;
    bool done = word != NULL;
    for (uint64_t first = 0; done && first < operation->argument[1]; first += WORDS) {
        uint64_t left = operation->argument[1] - first, count = left < WORDS ? left : WORDS;
        uint64_t address = operation->argument[0] + first * WORD;
        done = operation->kernel == KERNEL_FILL || contents_read(address, word, count * WORD);
        if (done) wrong += work_on(operation, first, word, count);
        if (done && writes) done = contents_write(address, word, count * WORD);
    }
    free(word);
    return done && (writes || add_result(operation->argument[3], wrong));
}

bool operation_do(const struct operation *operation) {
    switch (operation->kind) {
    case OPERATION_COPY:
    case OPERATION_FILL:
        return move(operation);
    case OPERATION_KERNEL:
        return run_kernel(operation);
    case OPERATION_NOTHING:
    case OPERATION_HOST: /* in a thread, where it began */
        break;
    }
    return true;
}

uint64_t operation_moves(const struct operation *operation, int *direction) {
    bool bus = operation->kind == OPERATION_COPY && operation->to_device != operation->from_device;
    *direction = operation->to_device ? COPY_IN : COPY_OUT;
    return bus ? operation->size * operation->rows * operation->layers : 0;
}
