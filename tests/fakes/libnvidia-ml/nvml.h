/* SPDX-License-Identifier: Apache-2.0
 *
 * What the simulated NVML keeps for its process, guarded by one mutex.
 */
#ifndef SIMULATED_NVML_H
#define SIMULATED_NVML_H

#include <stdbool.h>

#include "libnvidia-ml/nvml_api.h"
#include "simulated/state.h"

/* Takes the mutex, unless the library is not initialised: then returns NVML_ERROR_UNINITIALIZED. */
nvmlReturn_t nvml_enter(void);

/* nvml_enter, and finds the device's row. Returns NVML_ERROR_INVALID_ARGUMENT if it is no device, or if
 * `arguments` (what the caller found of its other arguments) is false. */
nvmlReturn_t nvml_enter_device(nvmlDevice_t device, bool arguments, unsigned *row);

/* Releases the mutex and hands the result through. */
nvmlReturn_t nvml_leave(nvmlReturn_t result);

/* Valid between nvml_enter and nvml_leave. */
extern struct simulated_state nvml_state;

/* Writes the text if it fits: NVML_ERROR_INSUFFICIENT_SIZE otherwise. */
nvmlReturn_t nvml_write_text(char *target, unsigned length, const char *text);

#endif
