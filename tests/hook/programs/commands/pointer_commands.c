/* SPDX-License-Identifier: Apache-2.0
 *
 * What the driver tells of an address.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

enum { ATTRIBUTES = 22 };

/* describe ADDRESS: each attribute as a number, or `E` and the error; then start and size of the range. */
static CUresult describe_address(CUdeviceptr address, char *values) {
    CUdeviceptr start = 0;
    size_t size = 0;
    for (int attribute = 1; attribute < ATTRIBUTES; attribute++) {
        uint64_t value = 0;
        CUresult result = cuda.cuPointerGetAttribute(&value, attribute, address);
        values += result ? sprintf(values, " E%d", result) : sprintf(values, " %lu", (unsigned long)value);
    }
    CUresult result = cuda.cuMemGetAddressRange_v2(&start, &size, address);
    sprintf(values, " %lu %zu", (unsigned long)start, size);
    return result;
}

/* describeall ADDRESS: all attributes at once. */
static CUresult describe_at_once(CUdeviceptr address, char *values) {
    uint64_t found[ATTRIBUTES] = {0};
    int attributes[ATTRIBUTES];
    void *data[ATTRIBUTES];
    for (int index = 0; index < ATTRIBUTES - 1; index++) {
        attributes[index] = index + 1;
        data[index] = &found[index];
    }
    CUresult result = cuda.cuPointerGetAttributes(ATTRIBUTES - 1, attributes, data, address);
    for (int index = 0; index < ATTRIBUTES - 1; index++)
        values += sprintf(values, " %lu", (unsigned long)found[index]);
    return result;
}

CUresult run_pointer(const char *command, const size_t *number, char *values) {
    if (strcmp(command, "describe") == 0) return describe_address(number[0], values);
    if (strcmp(command, "describeall") == 0) return describe_at_once(number[0], values);
    if (strcmp(command, "syncmemops") == 0) return cuda.cuPointerSetAttribute(&(unsigned){1}, 6, number[0]);
    return -1;
}
