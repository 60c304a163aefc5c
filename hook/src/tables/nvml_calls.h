/* SPDX-License-Identifier: Apache-2.0
 *
 * THE list of hooked calls of NVML, as hooked_calls.h is that of CUDA: X(symbol, parameters, arguments). And
 * the other list: calls that could tell of memory, processes or devices, and that are not hooked; X(symbol,
 * reason).
 * tests/hook/test_nvml.py compares both with the functions that pynvml knows.
 *
 * - AREA: what is mapped of the card for the host; of all processes together, and no memory of anybody
 * - HOST: answered only where the host's administrator has switched it on, and then with the pids of all of
 * the host
 * - BUSY: how busy processes keep the card, not what they hold
 * - NAME: of a process that is visible here, by /proc
 * - KIND: what kind of memory it is, how it fares, what it could be divided into
 * - NEAR: which cards lie near to each other; of a card that is not shown, no memory can be had
 * - PART: an instance of a card whose handle the program has
 */
#ifndef CONVGPU_NVML_CALLS_H
#define CONVGPU_NVML_CALLS_H

#define CONVGPU_NVML_CALLS(X)                                                                                \
    X(nvmlDeviceGetMemoryInfo, (nvml_device device, struct nvml_memory * memory), (device, memory))          \
    X(nvmlDeviceGetMemoryInfo_v2, (nvml_device device, struct nvml_memory_v2 * memory), (device, memory))    \
    X(nvmlDeviceGetConfComputeProtectedMemoryUsage, (nvml_device device, struct nvml_memory * memory),       \
      (device, memory))                                                                                      \
    X(nvmlDeviceGetComputeRunningProcesses, (nvml_device device, unsigned *count, void *rows),               \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetComputeRunningProcesses_v2, (nvml_device device, unsigned *count, void *rows),            \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (nvml_device device, unsigned *count, void *rows),            \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetGraphicsRunningProcesses, (nvml_device device, unsigned *count, void *rows),              \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, (nvml_device device, unsigned *count, void *rows),           \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvml_device device, unsigned *count, void *rows),           \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetMPSComputeRunningProcesses, (nvml_device device, unsigned *count, void *rows),            \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, (nvml_device device, unsigned *count, void *rows),         \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, (nvml_device device, unsigned *count, void *rows),         \
      (device, count, rows))                                                                                 \
    X(nvmlDeviceGetRunningProcessDetailList, (nvml_device device, struct nvml_details * list),               \
      (device, list))                                                                                        \
    X(nvmlDeviceGetCount, (unsigned *count), (count))                                                        \
    X(nvmlDeviceGetCount_v2, (unsigned *count), (count))                                                     \
    X(nvmlDeviceGetIndex, (nvml_device device, unsigned *index), (device, index))                            \
    X(nvmlDeviceGetHandleByIndex, (unsigned index, nvml_device *device), (index, device))                    \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvml_device *device), (index, device))                 \
    X(nvmlDeviceGetHandleByUUID, (const char *text, nvml_device *device), (text, device))                    \
    X(nvmlDeviceGetHandleByUUIDV, (const void *uuid, nvml_device *device), (uuid, device))                   \
    X(nvmlDeviceGetHandleBySerial, (const char *text, nvml_device *device), (text, device))                  \
    X(nvmlDeviceGetHandleByPciBusId, (const char *text, nvml_device *device), (text, device))                \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *text, nvml_device *device), (text, device))

#define CONVGPU_NVML_UNHANDLED(X)                                                                            \
    X(nvmlDeviceClearAccountingPids, HOST)                                                                   \
    X(nvmlDeviceGetAccountingBufferSize, HOST)                                                               \
    X(nvmlDeviceGetAccountingMode, HOST)                                                                     \
    X(nvmlDeviceGetAccountingPids, HOST)                                                                     \
    X(nvmlDeviceGetAccountingStats, HOST)                                                                    \
    X(nvmlDeviceGetBAR1MemoryInfo, AREA)                                                                     \
    X(nvmlDeviceGetConfComputeMemSizeInfo, KIND)                                                             \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, PART)                                                    \
    X(nvmlDeviceGetMemoryAffinity, KIND)                                                                     \
    X(nvmlDeviceGetMemoryBusWidth, KIND)                                                                     \
    X(nvmlDeviceGetMemoryErrorCounter, KIND)                                                                 \
    X(nvmlDeviceGetMemoryLimits, KIND)                                                                       \
    X(nvmlDeviceGetTopologyNearestGpus, NEAR)                                                                \
    X(nvmlDeviceGetUnrepairableMemoryFlag, KIND)                                                             \
    X(nvmlDeviceGetMigDeviceHandleByIndex, PART)                                                             \
    X(nvmlDeviceGetProcessUtilization, BUSY)                                                                 \
    X(nvmlDeviceGetProcessesUtilizationInfo, BUSY)                                                           \
    X(nvmlSystemGetProcessName, NAME)                                                                        \
    X(nvmlSystemGetTopologyGpuSet, NEAR)

#endif
