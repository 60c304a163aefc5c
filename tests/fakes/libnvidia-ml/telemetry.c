/* SPDX-License-Identifier: Apache-2.0
 *
 * What a card does, as the file `faults` says: simulated kernels warm nothing.
 */
#include <stddef.h>

#include "libnvidia-ml/faults.h"
#include "libnvidia-ml/nvml.h"

#define POWER_LIMIT 700000 /* milliwatts, an H200's */

static nvmlReturn_t enter_telemetry(nvmlDevice_t device, bool arguments, struct nvml_faults *faults) {
    unsigned row;
    nvmlReturn_t result = nvml_enter_card(device, arguments, &row, faults);
    if (result != NVML_SUCCESS) return result;
    return faults->no_telemetry ? nvml_leave(NVML_ERROR_NOT_SUPPORTED) : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    struct nvml_faults faults;
    nvmlReturn_t result = enter_telemetry(device, rates != NULL, &faults);
    if (result != NVML_SUCCESS) return result;
    *rates = (nvmlUtilization_t){.gpu = (unsigned)faults.utilization};
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *degrees) {
    struct nvml_faults faults;
    bool valid = degrees != NULL && sensor == NVML_TEMPERATURE_GPU;
    nvmlReturn_t result = enter_telemetry(device, valid, &faults);
    if (result != NVML_SUCCESS) return result;
    *degrees = (unsigned)faults.temperature;
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
    struct nvml_faults faults;
    nvmlReturn_t result = enter_telemetry(device, milliwatts != NULL, &faults);
    if (result != NVML_SUCCESS) return result;
    *milliwatts = (unsigned)faults.power;
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts) {
    struct nvml_faults faults;
    nvmlReturn_t result = enter_telemetry(device, milliwatts != NULL, &faults);
    if (result != NVML_SUCCESS) return result;
    *milliwatts = POWER_LIMIT;
    return nvml_leave(NVML_SUCCESS);
}
