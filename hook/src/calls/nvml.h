/* SPDX-License-Identifier: Apache-2.0
 *
 * The few types of NVML's binary interface that the hook needs (nvml.h), and its hooked calls.
 */
#ifndef CONVGPU_NVML_H
#define CONVGPU_NVML_H

typedef struct nvmlDevice_st *nvml_device;

struct nvml_memory {
    unsigned long long total, unused, used;
};

struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, unused, used;
};

/* nvmlProcessDetailList_v1_t. */
struct nvml_details {
    unsigned version, mode, count;
    void *rows;
};

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_UNKNOWN = 999,
};

#include "tables/nvml_calls.h"

/* Calls of NVML that the hook uses itself and does not hook: X(symbol, parameters). */
#define CONVGPU_NVML_OWN_CALLS(X) X(nvmlDeviceGetUUID, (nvml_device device, char *text, unsigned size))

#define CONVGPU_NVML_FILE "libnvidia-ml.so.1"

/* The function of the real library, which the program has loaded; NULL when it has none. */
void *nvml_function(const char *symbol);

#define CONVGPU_DECLARE_NVML_HOOK(symbol, parameters, arguments)                                             \
    typedef int symbol##_function parameters;                                                                \
    int hooked_##symbol parameters;
#define CONVGPU_DECLARE_NVML_OWN(symbol, parameters) typedef int symbol##_function parameters;
CONVGPU_NVML_OWN_CALLS(CONVGPU_DECLARE_NVML_OWN)
CONVGPU_NVML_CALLS(CONVGPU_DECLARE_NVML_HOOK)

#endif
