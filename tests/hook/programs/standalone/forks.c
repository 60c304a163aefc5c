/* SPDX-License-Identifier: Apache-2.0
 *
 * Forks while other threads are in the hook: `forks COUNT`. Threads allocate and free, more than the headroom
 * too; the main one forks COUNT children, of which one ends at once, the next calls CUDA, the next becomes
 * another program. At the end one line: how many children ended as they should, and how many calls of the
 * threads went wrong.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3 };

static int (*use)(void *);
static int (*allocate)(uint64_t *, size_t);
static int (*release)(uint64_t);
static int (*get_info)(size_t *, size_t *);
static void *context;
static _Atomic int wrong, ended;

static void *work(void *argument) {
    size_t size = (size_t)1 << (21 + 4 * (uintptr_t)argument), unused, total; /* 2 MiB, 32 MiB, 512 MiB */
    uint64_t address;
    if (use(context)) wrong++;
    while (!ended) {
        int result = allocate(&address, size);
        if (result == 0 && release(address)) wrong++;
        if (result != 0 && result != OUT_OF_MEMORY) wrong++;
        if (get_info(&unused, &total)) wrong++;
    }
    return NULL;
}

/* What a child does; its exit status is 0 if that went as it should. */
static void be_child(int number) {
    uint64_t address;
    if (number % 3 == 1)
        _exit(allocate(&address, 4096) != NOT_INITIALIZED); /* as the driver says after fork */
    if (number % 3 == 2) execl("/bin/true", "true", NULL);
    _exit(0);
}

int main(int count, char **words) {
    pthread_t thread[THREADS];
    int children = count > 1 ? atoi(words[1]) : 0, good = 0;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return 1;
    use = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    allocate = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    release = (int (*)(uint64_t))dlsym(cuda, "cuMemFree_v2");
    get_info = (int (*)(size_t *, size_t *))dlsym(cuda, "cuMemGetInfo_v2");
    if (((int (*)(unsigned))dlsym(cuda, "cuInit"))(0)) return 1;
    if (((int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0)) return 1;
    for (uintptr_t index = 0; index < THREADS; index++)
        pthread_create(&thread[index], NULL, work, (void *)index);
    for (int number = 0; number < children; number++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) be_child(number);
        if (waitpid(child, &status, 0) == child && status == 0) good++;
    }
    ended = 1;
    for (int index = 0; index < THREADS; index++) pthread_join(thread[index], NULL);
    printf("%d %d\n", good, wrong);
    fflush(stdout);
    while (getchar() != EOF) continue;
    return 0;
}
