/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions about devices and about the processes that use them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "libnvidia-ml/faults.h"
#include "libnvidia-ml/nvml.h"

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    nvmlReturn_t result = nvml_enter();
    if (result != NVML_SUCCESS) return result;
    if (count == NULL) return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
    *count = nvml_state.configuration.device_count;
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count) {
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    nvmlReturn_t result = nvml_enter();
    if (result != NVML_SUCCESS) return result;
    bool valid = device != NULL && index < nvml_state.configuration.device_count;
    if (!valid) return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
    *device = &nvml_state.configuration.device[index];
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* Whether the device of a row is the one that `key` names. */
typedef bool row_matcher(unsigned row, const void *key);

static nvmlReturn_t find_device(row_matcher *matches, const void *key, nvmlDevice_t *device) {
    nvmlReturn_t result = nvml_enter();
    if (result != NVML_SUCCESS) return result;
    if (key == NULL || device == NULL) return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned row = 0; row < nvml_state.configuration.device_count; row++) {
        if (!matches(row, key)) continue;
        *device = &nvml_state.configuration.device[row];
        return nvml_leave(NVML_SUCCESS);
    }
    return nvml_leave(NVML_ERROR_NOT_FOUND);
}

static bool has_uuid(unsigned row, const void *key) {
    return strcasecmp(key, nvml_state.configuration.device[row].uuid_text) == 0;
}

static bool has_bytes(unsigned row, const void *key) {
    return memcmp(key, nvml_state.configuration.device[row].uuid, 16) == 0;
}

/* "DOMAIN:BUS:00.0" in hexadecimal, whatever the width of the domain; without one, domain 0. */
static bool has_bus_id(unsigned row, const void *key) {
    unsigned domain = 0, bus, number, function;
    if (sscanf(key, "%x:%x:%x.%x", &domain, &bus, &number, &function) != 4 &&
        (domain = 0, sscanf(key, "%x:%x.%x", &bus, &number, &function)) != 3)
        return false;
    return domain == 0 && bus == row + 1 && number == 0 && function == 0;
}

static void write_serial(unsigned row, char text[16]) {
    snprintf(text, 16, "165%010u", row + 1);
}

static bool has_serial(unsigned row, const void *key) {
    char text[16];
    write_serial(row, text);
    return strcmp(key, text) == 0;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find_device(has_uuid, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    if (uuid == NULL) return find_device(has_uuid, NULL, device);
    if (uuid->version != NVML_UUID_V1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == NVML_UUID_TYPE_ASCII) return find_device(has_uuid, uuid->text, device);
    return find_device(has_bytes, uuid->type == NVML_UUID_TYPE_BINARY ? uuid->bytes : NULL, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find_device(has_serial, serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    return find_device(has_bus_id, bus_id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *text, unsigned length) {
    unsigned row;
    char serial[16];
    nvmlReturn_t result = nvml_enter_device(device, text != NULL, &row);
    if (result != NVML_SUCCESS) return result;
    write_serial(row, serial);
    return nvml_leave(nvml_write_text(text, length, serial));
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    unsigned row;
    nvmlReturn_t result = nvml_enter_device(device, index != NULL, &row);
    if (result != NVML_SUCCESS) return result;
    *index = row;
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    return nvmlDeviceGetIndex(device, minor);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned length) {
    unsigned row;
    nvmlReturn_t result = nvml_enter_device(device, text != NULL, &row);
    if (result != NVML_SUCCESS) return result;
    return nvml_leave(nvml_write_text(text, length, SIMULATED_DEVICE_NAME));
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned length) {
    unsigned row;
    nvmlReturn_t result = nvml_enter_device(device, text != NULL, &row);
    if (result != NVML_SUCCESS) return result;
    return nvml_leave(nvml_write_text(text, length, device->uuid_text));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    unsigned row;
    nvmlReturn_t result = nvml_enter_device(device, pci != NULL, &row);
    if (result != NVML_SUCCESS) return result;
    *pci = (nvmlPciInfo_t){.bus = row + 1};
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "0000:%02X:00.0", (row + 1) & 0xff);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", row + 1);
    return nvml_leave(NVML_SUCCESS);
}

/* In MIG mode the parent device answers for all its instances, and only to who has the privileges (NVML API
 * Reference, nvmlDeviceGetMemoryInfo and nvmlDeviceGetComputeRunningProcesses). */
static bool is_allowed(const struct nvml_faults *faults) {
    return faults->mig == 0 || geteuid() == 0;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    unsigned row;
    struct nvml_faults faults;
    nvmlReturn_t result = nvml_enter_card(device, memory != NULL, &row, &faults);
    if (result != NVML_SUCCESS) return result;
    if (!is_allowed(&faults)) return nvml_leave(NVML_ERROR_NO_PERMISSION);
    uint64_t unused = state_free(&nvml_state, row);
    memory->total = device->total;
    memory->free = unused > faults.own ? unused - faults.own : 0;
    memory->used = memory->total - memory->free;
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    unsigned row;
    struct nvml_faults faults;
    nvmlReturn_t result = nvml_enter_card(device, current != NULL && pending != NULL, &row, &faults);
    if (result != NVML_SUCCESS) return result;
    *current = *pending = faults.mig != 0;
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlMemory_t simple;
    if (memory != NULL && memory->version != NVML_MEMORY_V2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, memory == NULL ? NULL : &simple);
    if (result != NVML_SUCCESS) return result;
    memory->total = simple.total;
    memory->reserved = 0;
    memory->free = simple.free;
    memory->used = simple.used;
    return NVML_SUCCESS;
}

static struct simulated_process processes[SIMULATED_SLOTS]; /* guarded by the mutex */

/* Fills `processes` and sets *count. NVML's protocol: *count says what the caller has room for (`room`: it
 * has an array at all), then how many there are; too little room is an error that still says the number. */
static nvmlReturn_t enter_processes(nvmlDevice_t device, unsigned *count, bool room) {
    unsigned row;
    struct nvml_faults faults;
    bool valid = count != NULL && (room || *count == 0);
    nvmlReturn_t result = nvml_enter_card(device, valid, &row, &faults);
    if (result != NVML_SUCCESS) return result;
    if (faults.processes_error != 0) return nvml_leave((nvmlReturn_t)faults.processes_error);
    if (!is_allowed(&faults)) return nvml_leave(NVML_ERROR_NO_PERMISSION);
    unsigned capacity = *count;
    *count = state_processes(&nvml_state, row, processes, SIMULATED_SLOTS);
    /* As NVML says that it is not available. */
    for (unsigned i = 0; faults.no_figures && i < *count; i++) processes[i].used = UINT64_MAX;
    return *count <= capacity ? NVML_SUCCESS : nvml_leave(NVML_ERROR_INSUFFICIENT_SIZE);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                  nvmlProcessInfo_v1_t *row) {
    nvmlReturn_t result = enter_processes(device, count, row != NULL);
    if (result != NVML_SUCCESS) return result;
    for (unsigned i = 0; i < *count; i++) {
        row[i] = (nvmlProcessInfo_v1_t){.pid = (unsigned)processes[i].pid, .used = processes[i].used};
    }
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_v2_t *row) {
    nvmlReturn_t result = enter_processes(device, count, row != NULL);
    if (result != NVML_SUCCESS) return result;
    for (unsigned i = 0; i < *count; i++) {
        row[i] = (nvmlProcessInfo_v2_t){.pid = (unsigned)processes[i].pid,
                                        .used = processes[i].used,
                                        .gpu_instance = NVML_NO_INSTANCE,
                                        .compute_instance = NVML_NO_INSTANCE};
    }
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_v2_t *row) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, row);
}

/* Nobody draws anything here, and there is no MPS. */
static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned *count) {
    unsigned row;
    nvmlReturn_t result = nvml_enter_device(device, count != NULL, &row);
    if (result != NVML_SUCCESS) return result;
    *count = 0;
    return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                   nvmlProcessInfo_v1_t *row) {
    (void)row;
    return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_v2_t *row) {
    (void)row;
    return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_v2_t *row) {
    (void)row;
    return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_v1_t *row) {
    (void)row;
    return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                        nvmlProcessInfo_v2_t *row) {
    (void)row;
    return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                        nvmlProcessInfo_v2_t *row) {
    (void)row;
    return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    if (list == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (list->version != NVML_PROCESS_DETAIL_LIST_V1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (list->mode > NVML_MODE_MPS) return NVML_ERROR_INVALID_ARGUMENT;
    if (list->mode != NVML_MODE_COMPUTE) return no_processes(device, &list->count);
    nvmlReturn_t result = enter_processes(device, &list->count, list->row != NULL);
    if (result != NVML_SUCCESS) return result;
    for (unsigned i = 0; i < list->count; i++) {
        list->row[i] = (nvmlProcessDetail_t){.pid = (unsigned)processes[i].pid,
                                             .used = processes[i].used,
                                             .gpu_instance = NVML_NO_INSTANCE,
                                             .compute_instance = NVML_NO_INSTANCE};
    }
    return nvml_leave(NVML_SUCCESS);
}
