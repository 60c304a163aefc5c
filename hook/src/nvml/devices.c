/* SPDX-License-Identifier: Apache-2.0
 *
 * Which devices NVML shows: all, or the chosen ones in the order in which CUDA numbers them, as if the
 * container had no others. Programs compare the two: PyTorch counts by NVML before it starts CUDA.
 *
 * The driver is asked first, so that its own errors reach the program.
 */
#include "nvml/nvml.h"

#include "gpus/uuid_text.h"
#include "nvml/shown.h"
#include "tables/driver.h"

#include <limits.h>
#include <string.h>

enum { NOT_CHOSEN = -1 };

/* The number of the device, or NOT_CHOSEN. */
static int find_position(const struct account_chosen *chosen, nvml_device device) {
    uint8_t uuid[CONVGPU_UUID_SIZE];
    if (nvml_find_uuid(device, uuid) != NVML_SUCCESS) return NOT_CHOSEN;
    for (uint32_t position = 0; position < chosen->count; position++)
        if (memcmp(chosen->uuid[position], uuid, sizeof uuid) == 0) return (int)position;
    return NOT_CHOSEN;
}

static int show_count(int result, unsigned *count) {
    struct account_chosen chosen;
    if (result == NVML_SUCCESS && shown_devices(&chosen)) *count = chosen.count;
    return result;
}

int hooked_nvmlDeviceGetCount(unsigned *count) {
    return show_count(NVML(nvmlDeviceGetCount, count), count);
}

int hooked_nvmlDeviceGetCount_v2(unsigned *count) {
    return show_count(NVML(nvmlDeviceGetCount_v2, count), count);
}

int hooked_nvmlDeviceGetIndex(nvml_device device, unsigned *index) {
    struct account_chosen chosen;
    int result = NVML(nvmlDeviceGetIndex, device, index);
    if (result != NVML_SUCCESS || !shown_devices(&chosen)) return result;
    int position = find_position(&chosen, device);
    if (position == NOT_CHOSEN) return NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned)position;
    return NVML_SUCCESS;
}

static int find_handle(const struct account_chosen *chosen, unsigned index, nvml_device *device) {
    char text[UUID_TEXT_SIZE];
    if (index >= chosen->count)
        return NVML(nvmlDeviceGetHandleByIndex_v2, UINT_MAX, device); /* its own error */
    uuid_to_text(chosen->uuid[index], text);
    return NVML(nvmlDeviceGetHandleByUUID, text, device);
}

int hooked_nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device) {
    struct account_chosen chosen;
    if (!device || !shown_devices(&chosen)) return NVML(nvmlDeviceGetHandleByIndex, index, device);
    return find_handle(&chosen, index, device);
}

int hooked_nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device) {
    struct account_chosen chosen;
    if (!device || !shown_devices(&chosen)) return NVML(nvmlDeviceGetHandleByIndex_v2, index, device);
    return find_handle(&chosen, index, device);
}

/* Whether a device that the driver found is shown. */
static bool is_shown(nvml_device found) {
    struct account_chosen chosen;
    return !shown_devices(&chosen) || find_position(&chosen, found) != NOT_CHOSEN;
}

#define HANDLE_BY(symbol, type)                                                                              \
    int hooked_##symbol(const type *key, nvml_device *device) {                                              \
        nvml_device found;                                                                                   \
        int result = NVML(symbol, key, device ? &found : NULL);                                              \
        if (result == NVML_SUCCESS && !is_shown(found)) result = NVML_ERROR_NOT_FOUND;                       \
        if (result == NVML_SUCCESS) *device = found;                                                         \
        return result;                                                                                       \
    }
HANDLE_BY(nvmlDeviceGetHandleByUUID, char)
HANDLE_BY(nvmlDeviceGetHandleByUUIDV, void)
HANDLE_BY(nvmlDeviceGetHandleBySerial, char)
HANDLE_BY(nvmlDeviceGetHandleByPciBusId, char)
HANDLE_BY(nvmlDeviceGetHandleByPciBusId_v2, char)
