/* SPDX-License-Identifier: Apache-2.0
 *
 *   exports TURNS    one line of JSON: medians in nanoseconds of the calls that give memory a descriptor
 *
 * `create` and `release`: cuMemCreate and cuMemRelease of 2 MiB that may be exported, and is not. Then the
 * same with `export`, cuMemExportToShareableHandle, whose descriptor is closed before the release.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PINNED = 1, FILE_DESCRIPTOR = 1, ON_DEVICE = 1, MOST_TURNS = 100000 };

/* CUmemAllocationProp of cuda.h */
struct properties {
    int type, handles;
    struct {
        int type, device;
    } location;
    void *windows;
    unsigned char flags[32];
};

typedef unsigned long long memory;

static int (*create)(memory *, size_t, const struct properties *, unsigned long long);
static int (*release)(memory);
static int (*export)(void *descriptor, memory, int type, unsigned long long flags);
static const struct properties properties = {
    .type = PINNED, .handles = FILE_DESCRIPTOR, .location = {ON_DEVICE, 0}};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void demand(int result, const char *call) {
    if (result == 0) return;
    fprintf(stderr, "exports: %s: CUDA error %d\n", call, result);
    exit(1);
}

static void start(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (cuda == NULL) {
        fprintf(stderr, "exports: %s\n", dlerror());
        exit(1);
    }
#define CALL(name, types, ...) demand(((int(*) types)dlsym(cuda, #name))(__VA_ARGS__), #name)
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    CALL(cuCtxSetCurrent, (void *), context);
    *(void **)&create = dlsym(cuda, "cuMemCreate");
    *(void **)&release = dlsym(cuda, "cuMemRelease");
    *(void **)&export = dlsym(cuda, "cuMemExportToShareableHandle");
}

static int compare(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void measure(int turns, int exports, double medians[3]) {
    static double took[3][MOST_TURNS];
    for (int turn = 0; turn < turns; turn++) {
        memory block;
        int descriptor = -1;
        double begin = now();
        demand(create(&block, 2 << 20, &properties, 0), "cuMemCreate");
        double created = now();
        if (exports) demand(export(&descriptor, block, FILE_DESCRIPTOR, 0), "cuMemExportToShareableHandle");
        double exported = now();
        if (exports) close(descriptor);
        double closed = now();
        demand(release(block), "cuMemRelease");
        took[0][turn] = created - begin;
        took[1][turn] = exported - created;
        took[2][turn] = now() - closed;
    }
    for (int part = 0; part < 3; part++) medians[part] = median(took[part], turns);
}

int main(int count, char **words) {
    int turns = count == 2 ? atoi(words[1]) : 0;
    if (turns < 1 || turns > MOST_TURNS) {
        fprintf(stderr, "usage: exports TURNS (1 to %d)\n", MOST_TURNS);
        return 2;
    }
    double plain[3], shared[3];
    start();
    measure(turns, 0, plain); /* warms up */
    measure(turns, 0, plain);
    measure(turns, 1, shared);
    printf("{\"create\": %.0f, \"release\": %.0f, \"exported create\": %.0f, \"export\": %.0f, "
           "\"exported release\": %.0f}\n",
           plain[0], plain[2], shared[0], shared[1], shared[2]);
    return 0;
}
