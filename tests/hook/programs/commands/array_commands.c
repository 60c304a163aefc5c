/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays, and the forms of calls of CUDA 2, whose sizes and addresses have 32 bits.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

/* flat WIDTH HEIGHT FORMAT CHANNELS, solid WIDTH HEIGHT DEPTH FORMAT CHANNELS FLAGS, mipmapped WIDTH HEIGHT
 * DEPTH FORMAT CHANNELS LEVELS; with a 1 the first form. */
static CUresult run_array(const char *command, const size_t *number, void **array) {
    struct flat_descriptor flat = {number[0], number[1], (unsigned)number[2], (unsigned)number[3]};
    struct flat_descriptor_v1 flat_v1 = {(unsigned)number[0], (unsigned)number[1], (unsigned)number[2],
                                         (unsigned)number[3]};
    struct array_descriptor solid = {number[0],           number[1],           number[2],
                                     (unsigned)number[3], (unsigned)number[4], (unsigned)number[5]};
    struct array_descriptor_v1 solid_v1 = {(unsigned)number[0], (unsigned)number[1], (unsigned)number[2],
                                           (unsigned)number[3], (unsigned)number[4], (unsigned)number[5]};
    if (strcmp(command, "flat") == 0) return cuda.cuArrayCreate_v2(array, &flat);
    if (strcmp(command, "flat1") == 0) return cuda.cuArrayCreate(array, &flat_v1);
    if (strcmp(command, "solid") == 0) return cuda.cuArray3DCreate_v2(array, &solid);
    if (strcmp(command, "solid1") == 0) return cuda.cuArray3DCreate(array, &solid_v1);
    if (strcmp(command, "mipmapped") != 0) return -1;
    solid.flags = 0;
    return cuda.cuMipmappedArrayCreate(array, &solid, (unsigned)number[5]);
}

static CUresult run_first_form(const char *command, const size_t *number, char *values) {
    CUresult result = -1;
    uint32_t address = 0x5a5a;
    unsigned pitch = 77, unused = 77, total = 77;
    if (strcmp(command, "free1") == 0) return cuda.cuMemFree((uint32_t)number[0]);
    if (strcmp(command, "alloc1") == 0) {
        result = cuda.cuMemAlloc(&address, (unsigned)number[0]);
        sprintf(values, " %#x", address);
    } else if (strcmp(command, "pitch1") == 0) {
        result = cuda.cuMemAllocPitch(&address, &pitch, (unsigned)number[0], (unsigned)number[1], 4);
        sprintf(values, " %#x %u", address, pitch);
    } else if (strcmp(command, "info1") == 0) {
        result = cuda.cuMemGetInfo(&unused, &total);
        sprintf(values, " %u %u", unused, total);
    } else if (strcmp(command, "total1") == 0) {
        result = cuda.cuDeviceTotalMem(&total, (CUdevice)number[0]);
        sprintf(values, " %u", total);
    }
    return result;
}

CUresult run_array_or_first_form(const char *command, const size_t *number, char *values) {
    void *array = (void *)0x5a5a;
    if (strcmp(command, "destroyarray") == 0) return cuda.cuArrayDestroy((void *)number[0]);
    if (strcmp(command, "destroymipmapped") == 0) return cuda.cuMipmappedArrayDestroy((void *)number[0]);
    CUresult result = run_array(command, number, &array);
    if (result == -1) return run_first_form(command, number, values);
    sprintf(values, " %p", array);
    return result;
}
