/* SPDX-License-Identifier: Apache-2.0
 *
 * footprint SIZE COUNT: allocates COUNT times, then frees and allocates COUNT / 10 of them again. Prints the
 * resident bytes of the process before and with all of them, and for batches of COUNT / 10 allocations the
 * mean time of one in nanoseconds, then that of the frees and allocations at the end.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 10 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static long resident(void) {
    long size, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2) exit(1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void check(int result) {
    if (result == 0) return;
    fprintf(stderr, "CUDA error %d\n", result);
    exit(1);
}

int main(int words, char **word) {
    if (words != 3) return 2;
    size_t size = strtoull(word[1], NULL, 10), count = strtoull(word[2], NULL, 10);
    uint64_t *addresses = calloc(count, sizeof *addresses);
    for (size_t index = 0; index < count; index++) addresses[index] = 1; /* resident from now on */
    long before = resident();                                            /* without CUDA */
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!cuda) return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    int (*allocate)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    int (*release)(uint64_t) = (int (*)(uint64_t))dlsym(cuda, "cuMemFree_v2");
    check(init(0));
    check(retain(&context, 0));
    check(set(context));
    size_t batch = count / BATCHES;
    double times[BATCHES];
    for (size_t part = 0; part < BATCHES; part++) {
        double start = now();
        for (size_t index = part * batch; index < (part + 1) * batch; index++)
            check(allocate(&addresses[index], size));
        times[part] = (now() - start) / (double)batch;
    }
    printf("%ld %ld", before, resident());
    for (size_t part = 0; part < BATCHES; part++) printf(" %.0f", times[part]);
    double start = now();
    for (size_t index = 0; index < count; index += BATCHES) {
        check(release(addresses[index]));
        check(allocate(&addresses[index], size));
    }
    printf(" %.0f\n", (now() - start) / (double)batch);
    return 0;
}
