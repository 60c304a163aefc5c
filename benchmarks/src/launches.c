/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of empty kernels in turns, in one process: by the driver's own function, by the same once more
 * (what differs between these two is what the measure cannot tell), and by the hook's. Prints for each of
 * ROUNDS the mean of one launch in nanoseconds, in this order.
 *
 *   launches ROUNDS MODULES IMAGE HOOK     so many modules of the file, each with a kernel `empty`, one by
 * one
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 400, MOST = 65536, WAYS = 3 }; /* a card queues 1,024, so no launch waits */

typedef int launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                   void **, void **);

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
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) exit((fprintf(stderr, "%s\n", dlerror()), 1));
    return function;
}

static void *kernels[MOST];
static int count, next;

static double batch(launch *submit) {
    double start = now();
    for (int i = 0; i < BATCH; i++) {
        check(submit(kernels[next], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
        next = next + 1 < count ? next + 1 : 0;
    }
    return (now() - start) / BATCH;
}

static void load(void *cuda, void *hook, const char *file) {
    int (*load_module)(void **, const char *) = (int (*)(void **, const char *))find(hook, "cuModuleLoad");
    void *hooked = dlsym(hook, "cuModuleGetFunction"); /* an older hook leaves it to the driver */
    int (*get)(void **, void *, const char *) =
        (int (*)(void **, void *, const char *))(hooked ? hooked : find(cuda, "cuModuleGetFunction"));
    for (int i = 0; i < count; i++) {
        void *module;
        check(load_module(&module, file), "cuModuleLoad");
        check(get(&kernels[i], module, "empty"), "cuModuleGetFunction");
    }
}

int main(int words_count, char **words) {
    if (words_count != 5 || (count = atoi(words[2])) < 1 || count > MOST) return 2;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *hook = dlopen(words[4], RTLD_NOW), *context;
    launch *driver = (launch *)find(cuda, "cuLaunchKernel");
    launch *ways[WAYS] = {driver, driver, (launch *)find(hook, "cuLaunchKernel")};
    int (*wait)(void) = (int (*)(void))find(cuda, "cuCtxSynchronize");
    check(((int (*)(unsigned))find(hook, "cuInit"))(0), "cuInit");
    check(((int (*)(void **, int))find(hook, "cuDevicePrimaryCtxRetain"))(&context, 0),
          "cuDevicePrimaryCtxRetain");
    check(((int (*)(void *))find(cuda, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    load(cuda, hook, words[3]);
    for (int i = 0; i < 2 * count; i += BATCH) batch(ways[WAYS - 1]); /* all of them are known then */
    for (int round = 0; round < atoi(words[1]); round++) {
        double took[WAYS];
        for (int turn = 0; turn < WAYS; turn++) {
            int way = (round + turn) % WAYS;
            check(wait(), "cuCtxSynchronize");
            took[way] = batch(ways[way]);
        }
        printf("%.1f %.1f %.1f\n", took[0], took[1], took[2]);
    }
    return 0;
}
