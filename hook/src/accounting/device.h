/* SPDX-License-Identifier: Apache-2.0
 *
 * From the driver's ordinals and contexts to device numbers of account.h. Ordinals are renumbered by
 * CUDA_VISIBLE_DEVICES, so a device is recognised by its UUID. Any thread may call these at any time.
 */
#ifndef CONVGPU_DEVICE_H
#define CONVGPU_DEVICE_H

#include "tables/driver.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { DEVICE_UNKNOWN = -1 };

/* The number of an ordinal; DEVICE_UNKNOWN when the container has no limit on it or there is no such ordinal.
 */
int device_of_ordinal(CUdevice ordinal);

/* The number of the device that has what is there; DEVICE_UNKNOWN likewise, and where nothing is. */
int device_of_pointer(CUdeviceptr address);

/* The calling thread's context, or the one that its memory dies with, and its device; the driver's own error
 * when there is none. */
CUresult device_current(CUcontext *context, int *device);

/* Memory that is made in `context` (of a green context) dies with `owner`, the primary one. Without memory
 * for the record, such memory is charged too long. */
void device_set_owner(CUcontext context, CUcontext owner);

/* The green context has ended: its handle may name another one now. */
void device_forget_owner(CUcontext context);

/* Makes the context current if it is another one, true if so; and undoes that. */
bool device_push(CUcontext context);
void device_pop(bool pushed);

/* A context was created, before the program has its handle, or was destroyed: it may name another one now. */
void device_context_changed(CUcontext context);

/* Changes with that, and when green contexts come and go; never 0. */
extern _Atomic uint32_t device_epoch;

/* Whether the handle names another context than when the epoch was `since`, or none; true as well if nobody
 * knows. */
bool device_has_changed(CUcontext context, uint32_t since);

/* Says, once for each ordinal, that it has no limit here. */
void device_refuse(CUdevice ordinal);

#endif
