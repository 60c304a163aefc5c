/* SPDX-License-Identifier: Apache-2.0 */
#include "libnvidia-ml/faults.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "simulated/configuration.h"

struct nvml_faults nvml_faults_of(const char *directory, unsigned row) {
    struct nvml_faults faults = {0};
    char path[SIMULATED_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/faults", directory);
    FILE *file = fopen(path, "re");
    if (file == NULL) return faults;
    const struct {
        const char *key;
        uint64_t *target;
    } known[] = {
        {"error", &faults.error},     {"processes_error", &faults.processes_error},
        {"hang_ms", &faults.hang_ms}, {"own", &faults.own},
        {"mig", &faults.mig},         {"no_figures", &faults.no_figures},
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
