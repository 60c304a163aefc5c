/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries, as launches and contexts see them. driver.mutex held, unless it says otherwise.
 */
#ifndef SIMULATED_MODULE_H
#define SIMULATED_MODULE_H

#include <stdatomic.h>

#include "libcuda/driver.h"
#include "libcuda/handles.h"
#include "libcuda/module/module_api.h"
#include "libcuda/work/operation.h"

struct function {
    struct module *module;
    enum kernel kernel;
};

struct module {
    struct handle handle;
    struct context *context;
    struct module *next; /* of the same context */
    struct function function[KERNEL_COUNT];
    _Atomic bool due;    /* the next launch may take memory */
    uint64_t code;       /* bytes that the first launch takes */
    uint64_t lasts;      /* ns that its kernels take */
    uint64_t local;      /* bytes that each thread of its kernels needs */
    bool heap, printf;   /* whether its kernels use them */
    unsigned calls;      /* of the driver's code, by its kernels */
    uint64_t parameters; /* bytes of their one parameter; 0: as the kernel's arguments */
    uint64_t variables;  /* bytes that are not there yet */
    uint64_t taken;      /* of the device */
};

/* By its name; KERNEL_NONE for any other. */
enum kernel kernel_named(const char *name);

/* What kernels call of the driver's code: malloc, for one, is a bit. */
enum { CALLS_PRINT = 1, CALLS_ASSERT = 2, CALLS_HEAP = 4, CALLS_LAUNCH = 8 };

/* What an image says of itself. */
struct image {
    uint64_t variables, code, lasts_us, local, heap, printf, parameters;
    unsigned calls;
};
void image_read(const void *text, struct image *image);

/* What its context needs of the driver's code, if it calls that; it keeps that when the module goes. */
bool module_take_calls(struct module *module);

/* Takes what is wanted from the device, and nothing the next time. */
bool module_take(struct module *module, uint64_t *wanted);

/* A launch of a function takes what is not there: variables, code, stacks, heap. In a capture it waits for
 * the graph's launch. Mutex not held. */
CUresult module_launch(struct function *function, CUstream stream);

/* The same for a kernel of a graph, in the context of its module. Mutex held. */
bool module_grow(const struct module *handle);

/* Everything that made the context grow goes with it. */
void module_end_all(struct context *context);

#endif
