/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/nvml.h"

#include "base/libc_symbols.h"
#include "gpus/uuid_text.h"
#include "tables/driver.h"

#include <dlfcn.h>

enum { UUID_TEXT = 96 };

void *nvml_function(const char *symbol) {
    inside_driver++;
    void *handle = dlopen(CONVGPU_NVML_FILE, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? libc_dlsym()(handle, symbol) : NULL;
    if (handle) dlclose(handle);
    inside_driver--;
    return found;
}

int nvml_find_uuid(nvml_device device, uint8_t *uuid) {
    char text[UUID_TEXT];
    int result = NVML(nvmlDeviceGetUUID, device, text, (unsigned)sizeof text);
    if (result != NVML_SUCCESS) return result;
    return uuid_parse(text, uuid) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}
