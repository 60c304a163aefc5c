/* SPDX-License-Identifier: Apache-2.0
 *
 * The few types of NVML's binary interface that the hook needs (nvml.h), and its hooked calls.
 */
#ifndef CONVGPU_NVML_H
#define CONVGPU_NVML_H

#include <stdint.h>

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
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_FOUND = 6,
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

/* Writes the 16 bytes of a device's UUID (an instance, MIG, has one of its own). The driver's own error when
 * it knows no such device. */
int nvml_find_uuid(nvml_device device, uint8_t *uuid);

#define CONVGPU_DECLARE_NVML_HOOK(symbol, parameters, arguments)                                             \
    typedef int symbol##_function parameters;                                                                \
    int hooked_##symbol parameters;
#define CONVGPU_DECLARE_NVML_OWN(symbol, parameters) typedef int symbol##_function parameters;
CONVGPU_NVML_OWN_CALLS(CONVGPU_DECLARE_NVML_OWN)
CONVGPU_NVML_CALLS(CONVGPU_DECLARE_NVML_HOOK)

/* A call of the real library in the program's place; for who includes tables/driver.h. */
#define NVML(symbol, ...)                                                                                    \
    __extension__({                                                                                          \
        symbol##_function *real = (symbol##_function *)nvml_function(#symbol);                               \
        inside_driver++;                                                                                     \
        int nvml_result = real ? real(__VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND;                          \
        inside_driver--;                                                                                     \
        nvml_result;                                                                                         \
    })

#endif
