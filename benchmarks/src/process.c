/* SPDX-License-Identifier: Apache-2.0
 *
 * process LIVE: prints the seconds that cuInit takes, and how much memory the process takes with LIVE
 * allocations, in KiB. As a program that uses the runtime does: through dlopen and dlsym.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SMALL = 512 };

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
    if (count != 2) return 2;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!cuda) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    int (*allocate)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    unsigned long long address;
    double start = now();
    check(init(0), "cuInit");
    double ready = now();
    check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(set(context), "cuCtxSetCurrent");
    for (int i = atoi(words[1]); i > 0; i--) check(allocate(&address, SMALL), "cuMemAlloc");
    printf("%.9f %ld\n", ready - start, resident());
    return 0;
}
