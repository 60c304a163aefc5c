/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NVML's binary interface that the simulated library offers.
 */
#ifndef SIMULATED_NVML_API_H
#define SIMULATED_NVML_API_H

#include <stdint.h>

#define NVML_EXPORT __attribute__((visibility("default")))

/* X(name, number, text of nvmlErrorString). */
#define NVML_RESULTS(X)                                                                                      \
    X(NVML_SUCCESS, 0, "Success")                                                                            \
    X(NVML_ERROR_UNINITIALIZED, 1, "Uninitialized")                                                          \
    X(NVML_ERROR_INVALID_ARGUMENT, 2, "Invalid Argument")                                                    \
    X(NVML_ERROR_NOT_SUPPORTED, 3, "Not Supported")                                                          \
    X(NVML_ERROR_NO_PERMISSION, 4, "Insufficient Permissions")                                               \
    X(NVML_ERROR_NOT_FOUND, 6, "Not Found")                                                                  \
    X(NVML_ERROR_INSUFFICIENT_SIZE, 7, "Insufficient Size")                                                  \
    X(NVML_ERROR_DRIVER_NOT_LOADED, 9, "Driver Not Loaded")                                                  \
    X(NVML_ERROR_GPU_IS_LOST, 15, "GPU is lost")                                                             \
    X(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, 25, "Argument Version Mismatch")                                 \
    X(NVML_ERROR_UNKNOWN, 999, "Unknown Error")

#define NVML_DECLARE_RESULT(name, number, text) name = (number),
typedef enum { NVML_RESULTS(NVML_DECLARE_RESULT) } nvmlReturn_t;

typedef const struct simulated_device *nvmlDevice_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
#define NVML_MEMORY_V2 (unsigned)(sizeof(nvmlMemory_v2_t) | 2u << 24)

/* Percent of the last sample period in which a kernel ran, and in which memory was read or written. */
typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;
#define NVML_TEMPERATURE_GPU 0u

typedef struct {
    unsigned pid;
    unsigned long long used;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_v2_t; /* v3 is the same */
#define NVML_NO_INSTANCE UINT32_MAX

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected;
} nvmlProcessDetail_t;

typedef struct {
    unsigned version, mode, count;
    nvmlProcessDetail_t *row;
} nvmlProcessDetailList_t;
#define NVML_PROCESS_DETAIL_LIST_V1 (unsigned)(sizeof(nvmlProcessDetailList_t) | 1u << 24)
enum { NVML_MODE_COMPUTE, NVML_MODE_GRAPHICS, NVML_MODE_MPS };

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

enum { NVML_UUID_TYPE_ASCII = 1, NVML_UUID_TYPE_BINARY = 2 };
typedef struct {
    unsigned version, type;
    union {
        char text[41];
        unsigned char bytes[16];
    };
} nvmlUUID_t;
#define NVML_UUID_V1 (unsigned)(sizeof(nvmlUUID_t) | 1u << 24)

NVML_EXPORT nvmlReturn_t nvmlInit(void);
NVML_EXPORT nvmlReturn_t nvmlInit_v2(void);
NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags);
NVML_EXPORT nvmlReturn_t nvmlShutdown(void);
NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result);

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned length);
NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned length);
NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);
NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *text, unsigned length);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned length);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned length);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_v1_t *row);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                                 nvmlProcessInfo_v2_t *row);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                                 nvmlProcessInfo_v2_t *row);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                               nvmlProcessInfo_v1_t *row);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                                  nvmlProcessInfo_v2_t *row);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                                  nvmlProcessInfo_v2_t *row);

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                                 nvmlProcessInfo_v1_t *row);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                                    nvmlProcessInfo_v2_t *row);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                                    nvmlProcessInfo_v2_t *row);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *degrees);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts);

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                               nvmlProcessDetailList_t *list);

#endif
