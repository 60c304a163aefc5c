/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that makes one CUDA call between two stops, for kill_at.c: `victim CALL [SIZE]`, CALL being
 * alloc, free or context. It has a context, and for `free` an allocation, before the first stop.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *cuda;

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

#define CALL(name, types, ...) check(((int(*) types)dlsym(cuda, #name))(__VA_ARGS__), #name)

int main(int count, char **words) {
    const char *call = words[1];
    size_t size = count > 2 ? strtoull(words[2], NULL, 0) : 0;
    uint64_t address = 0;
    void *context;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return fprintf(stderr, "%s\n", dlerror()), 1;
    CALL(cuInit, (unsigned), 0);
    if (strcmp(call, "context") != 0) {
        CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
        CALL(cuCtxSetCurrent, (void *), context);
    }
    if (strcmp(call, "free") == 0) CALL(cuMemAlloc_v2, (uint64_t *, size_t), &address, size);
    raise(SIGSTOP);
    if (strcmp(call, "alloc") == 0)
        CALL(cuMemAlloc_v2, (uint64_t *, size_t), &address, size);
    else if (strcmp(call, "free") == 0)
        CALL(cuMemFree_v2, (uint64_t), address);
    else
        CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    raise(SIGSTOP);
    return 0;
}
