/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that exports device memory and then waits to be ended: `exporter SIZE`, in bytes. It prints the
 * number of the descriptor that it exported.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* CUmemAllocationProp of the CUDA driver API: pinned memory of device 0, to be exported as a file descriptor.
 */
struct properties {
    int type, handle_types, location_type, location_id;
    void *security;
    unsigned char flags[8];
};

static void *cuda;

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

#define CALL(name, types, ...) check(((int(*) types)dlsym(cuda, #name))(__VA_ARGS__), #name)

int main(int count, char **words) {
    struct properties properties = {.type = 1, .handle_types = 1, .location_type = 1};
    uint64_t handle = 0;
    void *context;
    int descriptor = -1;
    if (count != 2) return fprintf(stderr, "usage: exporter SIZE\n"), 2;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return fprintf(stderr, "%s\n", dlerror()), 1;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuMemCreate, (uint64_t *, size_t, struct properties *, uint64_t), &handle,
         strtoull(words[1], NULL, 0), &properties, 0);
    CALL(cuMemExportToShareableHandle, (int *, uint64_t, int, uint64_t), &descriptor, handle, 1, 0);
    printf("%d\n", descriptor);
    fflush(stdout);
    for (;;) pause();
}
