/* SPDX-License-Identifier: Apache-2.0
 *
 * Which devices NVML shows when the scheduler chose them for the container.
 */
#ifndef CONVGPU_SHOWN_H
#define CONVGPU_SHOWN_H

#include "scheduler/account.h"

/* Writes the chosen devices. False: all that the driver has are shown, for the container's user named them,
 * or because no scheduler answers (the calls that need its figures fail by themselves then).
 *
 * A process with a session gets its session's devices: they are those of its CUDA. Another one asks the
 * scheduler (at most a second for all devices), and once in a second at most, so that a count and the handles
 * that follow it belong together. */
bool shown_devices(struct account_chosen *devices);

#endif
