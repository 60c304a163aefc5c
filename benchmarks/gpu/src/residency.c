/* SPDX-License-Identifier: Apache-2.0
 *
 * A program whose memory leaves and comes back: does what it is told on stdin, a line for each command, and
 * answers each with one line. Reaches the driver as the CUDA runtime does. Durations in nanoseconds.
 *
 *   residency KERNELS.ptx
 *
 *   alloc COUNT SIZE    that many blocks of SIZE bytes; how long it took, or `refused RESULT`
 *   fill SEED           all blocks, each from a seed of its own; 0
 *   check SEED          how many words are not what `fill` (and `passes`) left there
 *   passes COUNT        adds 0 to every word so many times; how long it took
 *   start COUNT         the same, not waited for
 *   busy DURATION       a kernel that lasts, not waited for
 *   wait                for all work; how long it took
 *   launches COUNT      of an empty kernel; the median of 50 batches, for one
 *   pairs COUNT SIZE    of an allocation and its free; the median of one, of COUNT
 *   rounds COUNT BUSY IDLE   so many times a pass over all blocks until BUSY ns are over, then IDLE ns
 * without; when it ended (CLOCK_MONOTONIC) launch              one kernel over all blocks, waited for; when
 * it ended (CLOCK_MONOTONIC) free                all blocks; how long it took
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long address;

enum { BLOCKS = 4096, SAMPLES = 4096, BATCHES = 50, GRID = 1056, THREADS = 256, NAMES = 5 };

static struct {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*synchronize)(void);
    int (*allocate)(address *block, size_t size);
    int (*release)(address block);
    int (*load)(void **module, const void *image);
    int (*function)(void **function, void *module, const char *name);
    int (*to_host)(void *to, address from, size_t size);
    int (*set_words)(address to, unsigned value, size_t count);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *stream, void **parameters, void **extra);
} cuda;

static struct {
    address at;
    uint64_t words;
} block[BLOCKS];
static unsigned blocks;
static address wrong; /* where `check` counts */

enum kernel { FILL, CHECK, ADD, LAST, EMPTY };
static void *kernels[NAMES];

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void demand(int result, const char *call) {
    if (result == 0) return;
    fprintf(stderr, "residency: %s: CUDA error %d\n", call, result);
    exit(1);
}

static void load_driver(void) {
    const struct {
        const char *name;
        void *target;
    } wanted[] = {
        {"cuInit", &cuda.init},
        {"cuDevicePrimaryCtxRetain", &cuda.retain},
        {"cuCtxSetCurrent", &cuda.set_current},
        {"cuCtxSynchronize", &cuda.synchronize},
        {"cuMemAlloc", &cuda.allocate},
        {"cuMemFree", &cuda.release},
        {"cuModuleLoadData", &cuda.load},
        {"cuModuleGetFunction", &cuda.function},
        {"cuMemcpyDtoH", &cuda.to_host},
        {"cuMemsetD32", &cuda.set_words},
        {"cuLaunchKernel", &cuda.launch},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!symbol) {
        fprintf(stderr, "residency: %s\n", dlerror());
        exit(1);
    }
    int (*find)(const char *, void **, int, uint64_t, int *);
    memcpy(&find, &symbol, sizeof find);
    for (size_t index = 0; index < sizeof wanted / sizeof *wanted; index++) {
        int status;
        demand(find(wanted[index].name, wanted[index].target, 12000, 0, &status), wanted[index].name);
    }
}

static void load_kernels(const char *path) {
    static const char *const names[NAMES] = {"fill", "check", "add", "last", "empty"};
    static char image[1 << 20];
    void *module;
    FILE *file = fopen(path, "r");
    if (!file || fread(image, 1, sizeof image - 1, file) == 0) {
        fprintf(stderr, "residency: %s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    demand(cuda.load(&module, image), "cuModuleLoadData");
    for (int kernel = 0; kernel < NAMES; kernel++) {
        demand(cuda.function(&kernels[kernel], module, names[kernel]), "cuModuleGetFunction");
    }
}

static void launch(enum kernel kernel, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    void *arguments[] = {&a, &b, &c, &d};
    unsigned grid = kernel == LAST || kernel == EMPTY ? 1 : GRID;
    unsigned threads = kernel == LAST || kernel == EMPTY ? 1 : THREADS;
    demand(cuda.launch(kernels[kernel], grid, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL),
           "cuLaunchKernel");
}

static void synchronize(void) {
    demand(cuda.synchronize(), "cuCtxSynchronize");
}

static void answer(uint64_t number) {
    printf("%llu\n", (unsigned long long)number);
}

static void allocate(uint64_t count, uint64_t size) {
    uint64_t begin = now();
    for (uint64_t i = 0; i < count; i++) {
        int result = blocks < BLOCKS ? cuda.allocate(&block[blocks].at, size) : 1;
        if (result != 0) {
            printf("refused %d\n", result);
            return;
        }
        block[blocks++].words = size / 8;
    }
    answer(now() - begin);
}

static void pass(void) {
    for (unsigned i = 0; i < blocks; i++) launch(ADD, block[i].at, block[i].words, 0, 0);
}

static void fill(uint64_t seed) {
    for (unsigned i = 0; i < blocks; i++) launch(FILL, block[i].at, block[i].words, seed + i * 1000003ull, 0);
    synchronize();
    answer(0);
}

static void check(uint64_t seed) {
    uint64_t found = 0;
    demand(cuda.set_words(wrong, 0, 2), "cuMemsetD32");
    for (unsigned i = 0; i < blocks; i++) {
        launch(CHECK, block[i].at, block[i].words, seed + i * 1000003ull, wrong);
    }
    demand(cuda.to_host(&found, wrong, sizeof found), "cuMemcpyDtoH");
    answer(found);
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static uint64_t median(uint64_t *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* In hundredths of a nanosecond. */
static void launches(uint64_t count) {
    uint64_t taken[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t begin = now();
        for (uint64_t i = 0; i < count; i++) launch(EMPTY, 0, 0, 0, 0);
        taken[batch] = (now() - begin) * 100 / count;
        synchronize();
    }
    answer(median(taken, BATCHES));
}

static void pairs(uint64_t count, uint64_t size) {
    static uint64_t taken[SAMPLES];
    if (count > SAMPLES) count = SAMPLES;
    for (uint64_t i = 0; i < count; i++) {
        address at;
        uint64_t begin = now();
        demand(cuda.allocate(&at, size), "cuMemAlloc");
        demand(cuda.release(at), "cuMemFree");
        taken[i] = now() - begin;
    }
    answer(median(taken, count));
}

static void idle(uint64_t duration) {
    struct timespec wait = {.tv_sec = (time_t)(duration / 1000000000),
                            .tv_nsec = (long)(duration % 1000000000)};
    nanosleep(&wait, NULL);
}

static void rounds(uint64_t count, uint64_t busy, uint64_t without) {
    for (uint64_t round = 0; round < count; round++) {
        launch(LAST, busy, 0, 0, 0);
        pass();
        synchronize();
        idle(without);
    }
    answer(now());
}

static void release_all(void) {
    uint64_t begin = now();
    while (blocks > 0) demand(cuda.release(block[--blocks].at), "cuMemFree");
    answer(now() - begin);
}

static void wait_for_all(uint64_t begin) {
    synchronize();
    answer(now() - begin);
}

static bool obey(const char *line) {
    char word[16] = "";
    unsigned long long a = 0, b = 0, c = 0;
    if (sscanf(line, "%15s %llu %llu %llu", word, &a, &b, &c) < 1) return true;
    uint64_t begin = now();
    if (strcmp(word, "alloc") == 0) allocate(a, b);
    if (strcmp(word, "fill") == 0) fill(a);
    if (strcmp(word, "check") == 0) check(a);
    if (strcmp(word, "launches") == 0) launches(a);
    if (strcmp(word, "pairs") == 0) pairs(a, b);
    if (strcmp(word, "rounds") == 0) rounds(a, b, c);
    if (strcmp(word, "free") == 0) release_all();
    if (strcmp(word, "wait") == 0) wait_for_all(begin);
    bool passes = strcmp(word, "passes") == 0, starts = strcmp(word, "start") == 0;
    for (uint64_t i = 0; (passes || starts) && i < a; i++) pass();
    if (passes) wait_for_all(begin);
    if (starts) answer(0);
    if (strcmp(word, "busy") == 0) {
        launch(LAST, a, 0, 0, 0);
        answer(0);
    }
    if (strcmp(word, "launch") == 0) {
        pass();
        synchronize();
        answer(now());
    }
    fflush(stdout);
    return strcmp(word, "end") != 0;
}

int main(int count, char **arguments) {
    char line[256];
    void *context;
    if (count != 2) {
        fprintf(stderr, "usage: residency KERNELS.ptx\n");
        return 2;
    }
    load_driver();
    demand(cuda.init(0), "cuInit");
    demand(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain");
    demand(cuda.set_current(context), "cuCtxSetCurrent");
    load_kernels(arguments[1]);
    demand(cuda.allocate(&wrong, sizeof(uint64_t)), "cuMemAlloc");
    answer(0);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && obey(line)) continue;
    return 0;
}
