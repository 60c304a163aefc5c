/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that allocate and free all the time: `churn THREADS TURNS SEED`. Each keeps up to KEPT blocks of 2
 * MiB and more. At the end one line: how many bytes all threads hold, and how often they were refused. Then
 * it waits for the end of stdin.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEPT = 16, BLOCK = 2 << 20, MOST_BLOCKS = 32, OUT_OF_MEMORY = 2 };

static int (*use)(void *);
static int (*allocate)(uint64_t *, size_t);
static int (*release)(uint64_t);
static void *context;
static int turns;
static _Atomic uint64_t held;
static _Atomic int refused, wrong;

static void *work(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    uint64_t address[KEPT] = {0}, size[KEPT] = {0};
    if (use(context)) wrong++;
    for (int turn = 0; turn < turns; turn++) {
        int place = rand_r(&seed) % KEPT;
        if (address[place]) {
            if (release(address[place])) wrong++;
            held -= size[place];
            address[place] = 0;
            continue;
        }
        size[place] = (uint64_t)(1 + rand_r(&seed) % MOST_BLOCKS) * BLOCK;
        int result = allocate(&address[place], size[place]);
        if (result == OUT_OF_MEMORY)
            refused++;
        else if (result)
            wrong++;
        if (result)
            address[place] = 0;
        else
            held += size[place];
    }
    return NULL;
}

int main(int count, char **words) {
    pthread_t thread[64];
    int threads = count > 3 ? atoi(words[1]) : 0;
    if (threads < 1 || threads > 64) return 2;
    turns = atoi(words[2]);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return 1;
    use = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    allocate = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    release = (int (*)(uint64_t))dlsym(cuda, "cuMemFree_v2");
    if (((int (*)(unsigned))dlsym(cuda, "cuInit"))(0)) return 1;
    if (((int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0)) return 1;
    puts("ready"); /* with a context: of those too the limit holds only so many */
    fflush(stdout);
    if (getchar() == EOF) return 1;
    for (int index = 0; index < threads; index++)
        pthread_create(&thread[index], NULL, work, (void *)(uintptr_t)(atoi(words[3]) * 64 + index));
    for (int index = 0; index < threads; index++) pthread_join(thread[index], NULL);
    printf("%llu %d %d\n", (unsigned long long)held, refused, wrong);
    fflush(stdout);
    while (getchar() != EOF) continue;
    return 0;
}
