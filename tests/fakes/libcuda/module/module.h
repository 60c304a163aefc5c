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
    _Atomic uint64_t code; /* bytes that the first launch takes */
    uint64_t lasts;        /* ns that its kernels take */
    uint64_t variables;    /* bytes that are not there yet */
    uint64_t taken;        /* of the device */
};

/* By its name; KERNEL_NONE for any other. */
enum kernel kernel_named(const char *name);

/* The first launch of a function loads what is not there. Mutex not held. */
CUresult module_launch(struct function *function);

/* Everything that made the context grow goes with it. */
void module_end_all(struct context *context);

#endif
