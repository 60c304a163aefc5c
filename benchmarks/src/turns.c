/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocate and free of 2 MiB in turns of two ways, in one process and so with the same caches, addresses and
 * clock: two processes differ by more than what the hook costs. Prints, for each of ROUNDS, the mean of one
 * allocate and free in nanoseconds, the one way and the other.
 *
 *   turns LIVE ROUNDS HOOK OVER   the driver's own functions, and the hook's, with LIVE other allocations
 * alive; first shows that the hook refuses OVER bytes, which the driver would give turns LIVE ROUNDS the
 * driver's own functions, alone in the process and with an idle thread: what the hook's thread costs a driver
 * that has none itself
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 100, SIZE = 2 << 20, SMALL = 512, OUT_OF_MEMORY = 2 };

struct way {
    int (*allocate)(unsigned long long *, size_t);
    int (*release)(unsigned long long);
    pthread_mutex_t *busy; /* held: a thread that waits for it is there meanwhile */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

static void *find(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (!function) exit((fprintf(stderr, "%s\n", dlerror()), 1));
    return function;
}

static void *open_library(const char *file) {
    void *library = dlopen(file, RTLD_NOW);
    if (!library) exit((fprintf(stderr, "%s\n", dlerror()), 1));
    return library;
}

static struct way way_into(void *library) {
    return (struct way){.allocate = (int (*)(unsigned long long *, size_t))find(library, "cuMemAlloc_v2"),
                        .release = (int (*)(unsigned long long))find(library, "cuMemFree_v2")};
}

static void *wait_idle(void *mutex) {
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    return NULL;
}

static double batch(const struct way *way) {
    unsigned long long address;
    pthread_t idle;
    if (way->busy) {
        pthread_mutex_lock(way->busy);
        check(pthread_create(&idle, NULL, wait_idle, way->busy), "pthread_create");
    }
    double start = now();
    for (int i = 0; i < BATCH; i++) {
        check(way->allocate(&address, SIZE), "cuMemAlloc");
        check(way->release(address), "cuMemFree");
    }
    double took = (now() - start) / BATCH;
    if (way->busy) {
        pthread_mutex_unlock(way->busy);
        check(pthread_join(idle, NULL), "pthread_join");
    }
    return took;
}

static void prove_limit(const struct way *driver, const struct way *hook, size_t over) {
    unsigned long long address;
    check(driver->allocate(&address, over), "cuMemAlloc of the driver");
    check(driver->release(address), "cuMemFree of the driver");
    if (hook->allocate(&address, over) == OUT_OF_MEMORY) return;
    fprintf(stderr, "the limit is not on\n");
    exit(1);
}

int main(int count, char **words) {
    static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
    if (count != 3 && count != 5) return 2;
    void *cuda = open_library("libcuda.so.1"), *lookup = count == 5 ? open_library(words[3]) : cuda;
    struct way ways[] = {way_into(cuda), way_into(lookup)};
    void *context;
    check(((int (*)(unsigned))find(lookup, "cuInit"))(0), "cuInit");
    check(((int (*)(void **, int))find(lookup, "cuDevicePrimaryCtxRetain"))(&context, 0),
          "cuDevicePrimaryCtxRetain");
    check(((int (*)(void *))find(cuda, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    if (count == 5)
        prove_limit(&ways[0], &ways[1], strtoull(words[4], NULL, 10));
    else
        ways[1].busy = &busy;
    for (int i = atoi(words[1]); i > 0; i--) {
        unsigned long long address;
        check(ways[1].allocate(&address, SMALL), "cuMemAlloc");
    }
    for (int round = 0; round < atoi(words[2]); round++) {
        double took[2];
        for (int turn = 0; turn < 2; turn++) took[(round + turn) % 2] = batch(&ways[(round + turn) % 2]);
        printf("%.1f %.1f\n", took[0], took[1]);
    }
    return 0;
}
