/* SPDX-License-Identifier: Apache-2.0
 *
 * Times allocate and free of 2 MiB with LIVE other allocations alive, as a program that uses the runtime
 * does: through dlopen and dlsym. Prints one line: seconds of cuInit, seconds of the first context, and then
 * for each of ROUNDS batches the mean of one allocate and free in nanoseconds. After the first two it says
 * how much memory the process takes with LIVE allocations, in KiB.
 *
 *   alloc_free LIVE ROUNDS
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 2000, SMALL = 512 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long resident(void) {
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2) exit(1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    int live = atoi(words[1]), rounds = atoi(words[2]);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    int (*allocate)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    int (*release)(unsigned long long) = (int (*)(unsigned long long))dlsym(cuda, "cuMemFree_v2");
    unsigned long long address;
    void *context;
    double start = now();
    check(init(0), "cuInit");
    double ready = now();
    check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    printf("%.9f %.9f", ready - start, now() - ready);
    check(set(context), "cuCtxSetCurrent");
    for (int i = 0; i < live; i++) check(allocate(&address, SMALL), "cuMemAlloc");
    printf(" %ld", resident());
    for (int round = 0; round < rounds; round++) {
        start = now();
        for (int i = 0; i < BATCH; i++) {
            check(allocate(&address, 2 << 20), "cuMemAlloc");
            check(release(address), "cuMemFree");
        }
        printf(" %.1f", (now() - start) * 1e9 / BATCH);
    }
    printf("\n");
    return 0;
}
