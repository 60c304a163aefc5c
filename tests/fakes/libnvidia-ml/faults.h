/* SPDX-License-Identifier: Apache-2.0
 *
 * What is wrong with a device, set from outside while programs run: the file `faults` beside `devices`, with
 * lines `ROW KEY=NUMBER`. It is read at each question to the card; without it every device is well.
 */
#ifndef SIMULATED_NVML_FAULTS_H
#define SIMULATED_NVML_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "libnvidia-ml/nvml_api.h"

struct nvml_faults {
    uint64_t error;           /* error=15: each question ends with this nvmlReturn_t */
    uint64_t processes_error; /* processes_error=3: those about processes do */
    uint64_t no_figures;      /* no_figures=1: processes are named, and what they hold is not available */
    uint64_t hang_ms;         /* hang_ms=30000: each answer takes so long */
    uint64_t own;             /* own=1048576: bytes that the driver holds for itself */
    uint64_t mig;             /* mig=1: MIG mode is on */
    uint64_t utilization;     /* utilization=87: percent; 0 without it */
    uint64_t temperature;     /* temperature=61: degrees Celsius; 30 without it */
    uint64_t power;           /* power=412000: milliwatts; 70000 without it */
    uint64_t no_telemetry;    /* no_telemetry=1: as a virtual GPU, it supports none of these three */
};

/* Returns what is wrong with the device in this row. A line that is not understood says nothing. */
struct nvml_faults nvml_faults_of(const char *directory, unsigned row);

/* nvml_enter_device for a question that goes to the card, which may be ill. Waits outside the mutex: the
 * other devices answer meanwhile. Sets *row and *faults. */
nvmlReturn_t nvml_enter_card(nvmlDevice_t device, bool arguments, unsigned *row, struct nvml_faults *faults);

#endif
