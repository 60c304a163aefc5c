/* SPDX-License-Identifier: Apache-2.0
 *
 * What the file `devices` says about the simulated devices, and where it lies. Format (docs/architecture.md,
 * "Simulated devices"): one line `UUID BYTES` per device, then lines `KEY=VALUE`; `#` starts a comment.
 */
#ifndef SIMULATED_CONFIGURATION_H
#define SIMULATED_CONFIGURATION_H

#include <stdint.h>

#define SIMULATED_DEVICES_MAX  63 /* as many as the hook's page has words */
#define SIMULATED_UUID_TEXT    41 /* "GPU-" and 36 characters, with the NUL */
#define SIMULATED_PATH_MAX     4096
#define SIMULATED_DEVICE_NAME  "Simulated GPU"
#define SIMULATED_CUDA_VERSION 13000

struct simulated_device {
    char uuid_text[SIMULATED_UUID_TEXT];
    uint8_t uuid[16];
    uint64_t total; /* bytes */
};

struct simulated_configuration {
    char directory[SIMULATED_PATH_MAX];
    unsigned device_count;
    struct simulated_device device[SIMULATED_DEVICES_MAX];
    uint64_t settle_us_per_gib; /* from the moment a death is noticed until its memory is free again */
    uint64_t context_size;      /* bytes that one context takes */
    uint64_t
        process_size; /* bytes that a process with a context takes beside it, and NVML counts for nobody */
    uint64_t copy_mib_per_s;        /* each way between host and device; 0: copies take no time */
    uint64_t checkpoint_us_per_gib; /* that a checkpoint takes for what it moves off the device */
    uint64_t oom_us;                /* how long a refused allocation takes */
    uint64_t pinned_mib;            /* the most that a process can pin of the host's memory; 0: no bound */
};

/* Reads DIRECTORY/devices. The directory is SIMULATED_GPU_DIRECTORY, or else where the library that holds
 * this code was loaded from. Returns 0, -ENOENT without the file, -EINVAL (and one line on stderr) if it
 * cannot be understood, or another negative errno. */
int simulated_configuration_read(struct simulated_configuration *configuration);

#endif
