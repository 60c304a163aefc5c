/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device is asked to do: a copy, a fill, a kernel. Graph nodes hold the same.
 */
#ifndef SIMULATED_OPERATION_H
#define SIMULATED_OPERATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kernels that every image has, by name; one of any other name touches nothing. Arguments have 64 bits.
 */
#define KERNELS(X)                                                                                           \
    X(KERNEL_NONE, "")                                                                                       \
    X(KERNEL_LAST, "last")   /* (ns): lasts so long */                                                       \
    X(KERNEL_FILL, "fill")   /* (address, words, seed): word i becomes kernel_word(seed, i) */               \
    X(KERNEL_CHECK, "check") /* (address, words, seed, result): adds the number of wrong words to *result */ \
    X(KERNEL_ADD, "add")     /* (address, words, value): adds to every word */                               \
    X(KERNEL_UNTIL, "until") /* (host word, value): lasts until the word of 32 bits there is the value */    \
    X(KERNEL_MEET, "meet")   /* (host word, count): adds 1 to it, and lasts until it is at least the count */

#define DECLARE_KERNEL(kernel, name) kernel,
enum kernel { KERNELS(DECLARE_KERNEL) KERNEL_COUNT };
#undef DECLARE_KERNEL

#define KERNEL_ARGUMENTS 4

enum operation_kind { OPERATION_NOTHING, OPERATION_COPY, OPERATION_FILL, OPERATION_KERNEL, OPERATION_HOST };

struct operation {
    enum operation_kind kind;
    /* A copy or a fill of `layers` layers of `rows` rows of `size` bytes; a row begins `pitch` bytes after
     * the one before, a layer `layer` bytes. */
    uint64_t to, from, size, rows, to_pitch, from_pitch, layers, to_layer, from_layer;
    bool to_device, from_device;
    unsigned char pattern[4];
    unsigned step; /* bytes of the pattern */
    enum kernel kernel;
    uint64_t argument[KERNEL_ARGUMENTS];
    const void *module;   /* of a kernel: where it is from */
    uint64_t lasts;       /* ns, beside what a copy takes */
    void (*call)(void *); /* of the host */
    void *data;
};

/* Word i of what KERNEL_FILL writes. */
static inline uint64_t kernel_word(uint64_t seed, uint64_t i) {
    return (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Whether all that it touches on devices may be touched. */
bool operation_can(const struct operation *operation);

/* Whether it touches any of the range. */
bool operation_touches(const struct operation *operation, uint64_t address, uint64_t size);

/* Does it. Returns false if it touched what is not there. */
bool operation_do(const struct operation *operation);

/* Bytes that go over the bus, and which way (enum copy_direction); 0 if none do. */
uint64_t operation_moves(const struct operation *operation, int *direction);

#endif
