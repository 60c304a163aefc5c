/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver that can do nothing, has everything, and writes down what it is asked for on stdout: `BASE VERSION
 * FLAGS`.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);

int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

static int refuse(void) {
    return 801; /* CUDA_ERROR_NOT_SUPPORTED */
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    if (*name) printf("%s %d %llu\n", name, version, (unsigned long long)flags);
    *function = strcmp(name, "cuInit") == 0                  ? (void *)cuInit
                : strcmp(name, "cuDriverGetVersion") == 0    ? (void *)cuDriverGetVersion
                : strncmp(name, "cuGetProcAddress", 16) == 0 ? (void *)cuGetProcAddress_v2
                                                             : (void *)refuse;
    if (status) *status = 0;
    return 0;
}
