/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions about devices.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "libcuda/driver.h"

_Static_assert(CUDA_DRIVER_VERSION == SIMULATED_CUDA_VERSION, "NVML says another version");

static const struct simulated_device *device_row(CUdevice device) {
    return &driver.state.configuration.device[driver.row[device]];
}

CUresult cuDriverGetVersion(int *version) {
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_DRIVER_VERSION; /* answered before cuInit, too */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    if (count == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *count = driver.device_count;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult result = driver_enter_device(ordinal);
    if (result != CUDA_SUCCESS) return result;
    if (device == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *device = ordinal;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (name == NULL || length <= 0) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)length, "%s", SIMULATED_DEVICE_NAME);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (uuid == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(uuid->bytes, device_row(device)->uuid, sizeof uuid->bytes);
    if (driver.instance) uuid->bytes[0] ^= INSTANCE_BIT;
    return driver_leave(CUDA_SUCCESS);
}

/* Of the card, also for an instance of it. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    CUresult result = cuDeviceGetUuid_v2(uuid, device);
    if (result == CUDA_SUCCESS && driver.instance) uuid->bytes[0] ^= INSTANCE_BIT;
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (size == NULL) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *size = device_row(device)->total;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem(unsigned *size, CUdevice device) {
    size_t total = 0;
    CUresult result = cuDeviceTotalMem_v2(&total, device);
    if (result != CUDA_SUCCESS) return result;
    if (size == NULL) return CUDA_ERROR_INVALID_VALUE;
    *size = total > UINT_MAX ? UINT_MAX : (unsigned)total; /* all that a 32-bit interface can say */
    return CUDA_SUCCESS;
}

static int attribute_value(int attribute, unsigned row) {
    static const struct {
        int attribute, value;
    } known[] = {
        {1, 1024},     /* threads per block */
        {2, 1024},     /* block x */
        {3, 1024},     /* block y */
        {4, 64},       /* block z */
        {5, INT_MAX},  /* grid x */
        {6, 65535},    /* grid y */
        {7, 65535},    /* grid z */
        {8, 49152},    /* shared memory per block, bytes */
        {10, 32},      /* warp size */
        {11, INT_MAX}, /* largest pitch, bytes */
        {14, 512},     /* texture alignment, bytes */
        {16, 132},     /* multiprocessors */
        {31, 1},       /* concurrent kernels */
        {39, 2048},    /* threads per multiprocessor */
        {41, 1},       /* unified addressing */
        {75, 9},       /* compute capability, major */
        {76, 0},       /* compute capability, minor */
        {83, 1},       /* managed memory */
        {124, 1},      /* dma-buf */
        {132, 1},      /* multicast */
    };
    if (attribute == 33) return (int)row + 1; /* PCI bus, as NVML says it */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].attribute == attribute) return known[i].value;
    }
    return 0;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    CUresult result = driver_enter_device(device);
    if (result != CUDA_SUCCESS) return result;
    if (value == NULL || attribute < 1 || attribute >= 256) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *value = attribute_value(attribute, driver.row[device]);
    return driver_leave(CUDA_SUCCESS);
}
