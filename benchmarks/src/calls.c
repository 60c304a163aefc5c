/* SPDX-License-Identifier: Apache-2.0
 *
 * A call that takes no memory, and how much of a limit can be had: `calls`, which prints one line of JSON
 * after each word on stdin: `times` (nanoseconds of one cuMemGetInfo, and the total that it says), `fill`
 * (bytes that can be allocated in blocks of 64 MiB, then of 2 MiB).
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, BATCH = 2000 };

static void *cuda;
static int (*get_info)(size_t *, size_t *);
static int (*allocate)(unsigned long long *, size_t);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

#define CALL(name, types, ...) check(((int(*) types)dlsym(cuda, #name))(__VA_ARGS__), #name)

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void times(void) {
    double queries[ROUNDS];
    size_t unused, total;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < BATCH; i++) check(get_info(&unused, &total), "cuMemGetInfo");
        queries[round] = (now() - start) * 1e9 / BATCH;
    }
    qsort(queries, ROUNDS, sizeof *queries, compare);
    printf("{\"query\": %.2f, \"total\": %zu}\n", queries[ROUNDS / 2], total);
}

static void fill(void) {
    static const size_t blocks[] = {64u << 20, 2u << 20};
    unsigned long long address;
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        while (allocate(&address, blocks[i]) == 0) bytes += blocks[i];
    printf("{\"bytes\": %zu}\n", bytes);
}

int main(void) {
    char word[16];
    void *context;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return fprintf(stderr, "%s\n", dlerror()), 1;
    *(void **)&get_info = dlsym(cuda, "cuMemGetInfo_v2");
    *(void **)&allocate = dlsym(cuda, "cuMemAlloc_v2");
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    CALL(cuCtxSetCurrent, (void *), context);
    while (scanf("%15s", word) == 1) {
        if (strcmp(word, "times") == 0) times();
        if (strcmp(word, "fill") == 0) fill();
        fflush(stdout);
    }
    return 0;
}
