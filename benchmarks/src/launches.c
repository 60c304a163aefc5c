/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of an empty kernel in turns: by the driver's own function and by the hook's, in one process.
 * Prints for each of ROUNDS the mean of one launch in nanoseconds, the one way and the other.
 *
 *   launches ROUNDS HOOK
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 2000 };

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

static double batch(launch *submit, void *function) {
    double start = now();
    for (int i = 0; i < BATCH; i++)
        check(submit(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
    return (now() - start) / BATCH;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *hook = dlopen(words[2], RTLD_NOW), *context, *module,
         *kernel;
    launch *ways[] = {(launch *)find(cuda, "cuLaunchKernel"), (launch *)find(hook, "cuLaunchKernel")};
    check(((int (*)(unsigned))find(hook, "cuInit"))(0), "cuInit");
    check(((int (*)(void **, int))find(hook, "cuDevicePrimaryCtxRetain"))(&context, 0),
          "cuDevicePrimaryCtxRetain");
    check(((int (*)(void *))find(cuda, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    check(((int (*)(void **, const char *))find(hook, "cuModuleLoadData"))(&module, "variables=0 code=0"),
          "cuModuleLoadData");
    check(
        ((int (*)(void **, void *, const char *))find(cuda, "cuModuleGetFunction"))(&kernel, module, "empty"),
        "cuModuleGetFunction");
    for (int round = 0; round < atoi(words[1]); round++) {
        double took[2];
        for (int turn = 0; turn < 2; turn++)
            took[(round + turn) % 2] = batch(ways[(round + turn) % 2], kernel);
        printf("%.1f %.1f\n", took[0], took[1]);
    }
    return 0;
}
