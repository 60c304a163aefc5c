/* SPDX-License-Identifier: Apache-2.0
 *
 * What nvidia-smi shows, in a few lines: `smi DOOR`, DOOR being how it finds NVML: linked, dlsym, dlvsym or
 * default (RTLD_DEFAULT). For each device one line `INDEX TOTAL USED FREE`, then for each process `INDEX PID
 * USED`. An error stands as `-RESULT` in a figure's place.
 */
#include "nvml/nvml.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, VERSION = 2 << 24 };

struct row {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static void *library;
static const char *lookup;

#ifdef LINKED
int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device);
nvmlDeviceGetMemoryInfo_v2_function nvmlDeviceGetMemoryInfo_v2;
nvmlDeviceGetComputeRunningProcesses_v3_function nvmlDeviceGetComputeRunningProcesses_v3;
#define FIND(symbol) symbol
#else
#define FIND(symbol) find(#symbol)
static void *find(const char *symbol) {
    void *found = strcmp(lookup, "default") == 0 ? dlsym(RTLD_DEFAULT, symbol) : dlsym(library, symbol);
    if (!found) fprintf(stderr, "no %s\n", symbol), exit(2);
    return found;
}
#endif

static void show(unsigned index, nvml_device device) {
    int (*memory_info)(nvml_device, struct nvml_memory_v2 *) = FIND(nvmlDeviceGetMemoryInfo_v2);
    int (*processes)(nvml_device, unsigned *, void *) = FIND(nvmlDeviceGetComputeRunningProcesses_v3);
    struct nvml_memory_v2 memory = {.version = VERSION | sizeof memory};
    struct row rows[ROWS];
    unsigned count = ROWS;
    int result = memory_info(device, &memory);
    if (result)
        printf("%u %d\n", index, -result);
    else
        printf("%u %llu %llu %llu\n", index, memory.total, memory.used, memory.unused);
    result = processes(device, &count, rows);
    if (result) printf("%u %d\n", index, -result);
    for (unsigned row = 0; !result && row < count; row++)
        printf("%u %u %llu\n", index, rows[row].pid, rows[row].used);
}

int main(int count, char **words) {
    lookup = count > 1 ? words[1] : "linked";
    library =
        dlopen("libnvidia-ml.so.1", RTLD_NOW | (strcmp(lookup, "default") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
    int (*initialise)(void) = FIND(nvmlInit_v2);
    int (*get_count)(unsigned *) = FIND(nvmlDeviceGetCount_v2);
    int (*get_device)(unsigned, nvml_device *) = FIND(nvmlDeviceGetHandleByIndex_v2);
    unsigned devices;
    nvml_device device;
    int result = initialise();
    if (!result) result = get_count(&devices);
    for (unsigned index = 0; !result && index < devices; index++) {
        result = get_device(index, &device);
        if (!result) show(index, device);
    }
    return result ? 1 : 0;
}
