/* SPDX-License-Identifier: Apache-2.0
 *
 * What primary contexts (context.c) and those of cuCtxCreate (created_context.c) have in common.
 */
#ifndef CONVGPU_CONTEXT_H
#define CONVGPU_CONTEXT_H

#include "accounting/charge.h"
#include "tables/driver.h"

#include <stdint.h>

struct device_contexts;

/* One creation; `attempt` calls the driver and writes `context`. */
struct creation {
    struct charge charge;
    charge_attempt *attempt;
    CUcontext context;
    CUdevice ordinal;
    void *parameters;
    int count;
    unsigned flags;
};

/* Held by whoever creates a context on a device, also while it is paused. */
void context_lock_creation(int device);
void context_unlock_creation(int device);

/* Charges and creates; the lock is held. `primary`: NULL, or those of the device whose primary one it is. */
CUresult context_create(int device, struct creation *creation, struct device_contexts *primary);

/* On a device without a limit here: the driver's own error if there is no such device, else no memory. */
CUresult context_refuse(struct creation *creation);

/* Gives back what was charged for a context; and what went with one that has ended. */
void context_give(int device, uint64_t size);
void context_give_ended(int device, uint64_t size);

/* Drops what lived in a context that has ended, and gives it back. */
void context_drop(CUcontext context);

#endif
