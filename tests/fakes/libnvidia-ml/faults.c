/* SPDX-License-Identifier: Apache-2.0 */
#include "libnvidia-ml/faults.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libnvidia-ml/nvml.h"
#include "simulated/configuration.h"

struct nvml_faults nvml_faults_of(const char *directory, unsigned row) {
    struct nvml_faults faults = {.temperature = 30, .power = 70000};
    char path[SIMULATED_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/faults", directory);
    FILE *file = fopen(path, "re");
    if (file == NULL) return faults;
    const struct {
        const char *key;
        uint64_t *target;
    } known[] = {
        {"error", &faults.error},
        {"processes_error", &faults.processes_error},
        {"hang_ms", &faults.hang_ms},
        {"own", &faults.own},
        {"mig", &faults.mig},
        {"no_figures", &faults.no_figures},
        {"utilization", &faults.utilization},
        {"temperature", &faults.temperature},
        {"power", &faults.power},
        {"no_telemetry", &faults.no_telemetry},
    };
    char line[128], key[32];
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned here;
        uint64_t value;
        if (sscanf(line, "%u %31[a-z_]=%" SCNu64, &here, key, &value) != 3 || here != row) continue;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            if (strcmp(key, known[i].key) == 0) *known[i].target = value;
        }
    }
    fclose(file);
    return faults;
}

nvmlReturn_t nvml_enter_card(nvmlDevice_t device, bool arguments, unsigned *row, struct nvml_faults *faults) {
    nvmlReturn_t result = nvml_enter_device(device, arguments, row);
    if (result != NVML_SUCCESS) return result;
    *faults = nvml_faults_of(nvml_state.configuration.directory, *row);
    if (faults->hang_ms != 0) {
        nvml_leave(NVML_SUCCESS);
        struct timespec rest = {(time_t)(faults->hang_ms / 1000), (long)(faults->hang_ms % 1000) * 1000000};
        nanosleep(&rest, NULL);
        result = nvml_enter_device(device, arguments, row);
        if (result != NVML_SUCCESS) return result;
    }
    return faults->error == 0 ? NVML_SUCCESS : nvml_leave((nvmlReturn_t)faults->error);
}
