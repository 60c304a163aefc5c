/* SPDX-License-Identifier: Apache-2.0
 *
 * What the benchmarks on a card run, with and without the hook. It reaches the driver as the CUDA runtime
 * does, by dlopen and cuGetProcAddress. Durations in nanoseconds, moments in nanoseconds of CLOCK_MONOTONIC.
 *
 *   card costs TOO_MUCH    one line of JSON: what the calls cost, and the result of an allocation of TOO_MUCH
 * bytes card hold SIZE         `asking MOMENT`, then `returned MOMENT RESULT`; holds SIZE bytes until stdin
 * ends card watch             for each line SIZE on stdin `free MOMENT`, as soon as so many bytes are free
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long address;

enum { TURNS = 4000, LIVE = 4000, LAUNCHES = 20000, IN_FLIGHT = 500, LOOKS = 256, OUT_OF_MEMORY = 2 };
static const size_t block_size = 2 << 20;

static struct {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*synchronize)(void);
    int (*allocate)(address *block, size_t size);
    int (*release)(address block);
    int (*memory)(size_t *unused, size_t *total);
    int (*load)(void **module, const void *image);
    int (*function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *stream, void **parameters, void **extra);
} cuda;

static const char empty_kernel[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n";

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void demand(int result, const char *call) {
    if (result == 0) return;
    fprintf(stderr, "card: %s: CUDA error %d\n", call, result);
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
        {"cuMemGetInfo", &cuda.memory},
        {"cuModuleLoadData", &cuda.load},
        {"cuModuleGetFunction", &cuda.function},
        {"cuLaunchKernel", &cuda.launch},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*find)(const char *, void **, int, uint64_t, int *) =
        library ? (int (*)(const char *, void **, int, uint64_t, int *))dlsym(library, "cuGetProcAddress_v2")
                : NULL;
    if (!find) {
        fprintf(stderr, "card: %s\n", dlerror());
        exit(1);
    }
    for (size_t index = 0; index < sizeof wanted / sizeof *wanted; index++) {
        int status;
        demand(find(wanted[index].name, wanted[index].target, 12000, 0, &status), wanted[index].name);
    }
}

static double start(double *context_time) {
    void *context = NULL;
    load_driver();
    double begin = now();
    demand(cuda.init(0), "cuInit");
    double initialised = now();
    demand(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain");
    *context_time = now() - initialised;
    demand(cuda.set_current(context), "cuCtxSetCurrent");
    return initialised - begin;
}

static int compare(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* Allocates and frees one block at a time. */
static void time_pairs(double *allocating, double *freeing) {
    static double first[TURNS], second[TURNS];
    for (int turn = 0; turn < TURNS; turn++) {
        address block;
        double begin = now();
        int result = cuda.allocate(&block, block_size);
        double middle = now();
        demand(result, "cuMemAlloc");
        demand(cuda.release(block), "cuMemFree");
        second[turn] = now() - middle;
        first[turn] = middle - begin;
    }
    *allocating = median(first, TURNS);
    *freeing = median(second, TURNS);
}

/* Allocates many blocks, then frees them all. Means, for there the number of live blocks differs. */
static void time_many(double *allocating, double *freeing) {
    static address blocks[LIVE];
    double begin = now();
    for (int index = 0; index < LIVE; index++)
        demand(cuda.allocate(&blocks[index], block_size), "cuMemAlloc");
    double middle = now();
    for (int index = 0; index < LIVE; index++) demand(cuda.release(blocks[index]), "cuMemFree");
    *freeing = (now() - middle) / LIVE;
    *allocating = (middle - begin) / LIVE;
}

static double time_launches(void) {
    static double took[LAUNCHES];
    void *module, *function;
    demand(cuda.load(&module, empty_kernel), "cuModuleLoadData");
    demand(cuda.function(&function, module, "empty"), "cuModuleGetFunction");
    for (int turn = 0; turn < LAUNCHES; turn++) {
        if (turn % IN_FLIGHT == 0) demand(cuda.synchronize(), "cuCtxSynchronize");
        double begin = now();
        int result = cuda.launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        took[turn] = now() - begin;
        demand(result, "cuLaunchKernel");
    }
    demand(cuda.synchronize(), "cuCtxSynchronize");
    return median(took, LAUNCHES);
}

static double time_queries(void) {
    static double took[TURNS];
    size_t unused, total;
    for (int turn = 0; turn < TURNS; turn++) {
        double begin = now();
        demand(cuda.memory(&unused, &total), "cuMemGetInfo");
        took[turn] = now() - begin;
    }
    return median(took, TURNS);
}

static int costs(size_t too_much) {
    double context, allocating, freeing, many_allocating, many_freeing;
    address block;
    double init = start(&context);
    double begin = now();
    int refusal = cuda.allocate(&block, too_much);
    double refusing = now() - begin;
    if (refusal == 0) demand(cuda.release(block), "cuMemFree");
    time_pairs(&allocating, &freeing); /* warms up */
    time_pairs(&allocating, &freeing);
    time_many(&many_allocating, &many_freeing);
    double launching = time_launches(), asking = time_queries();
    printf("{\"refusal\": %d, \"refusing\": %.0f, \"cuInit\": %.0f, \"context\": %.0f, \"allocate\": %.0f, "
           "\"free\": %.0f, "
           "\"allocate many\": %.0f, \"free many\": %.0f, \"launch\": %.0f, \"memory\": %.0f}\n",
           refusal, refusing, init, context, allocating, freeing, many_allocating, many_freeing, launching,
           asking);
    return 0;
}

static int ask(size_t size) {
    address block;
    printf("asking %.0f\n", now());
    int result = cuda.allocate(&block, size);
    printf("returned %.0f %d\n", now(), result);
    return result;
}

static void ask_when_free(size_t size) {
    size_t seen = 0, unused, total;
    puts("waiting");
    for (;;) {
        demand(cuda.memory(&unused, &total), "cuMemGetInfo");
        if (unused > seen && unused >= size && ask(size) != OUT_OF_MEMORY) return;
        seen = unused;
    }
}

static int hold(char **sizes, int count, bool waits) {
    double context;
    (void)start(&context);
    for (int index = 0; index < count; index++) {
        size_t size = strtoull(sizes[index], NULL, 10);
        if (waits && index == count - 1)
            ask_when_free(size);
        else
            (void)ask(size);
    }
    puts("holding");
    while (getchar() != EOF) continue;
    return 0;
}

static bool more_to_read(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

/* Looks as fast as it can, and only now and then whether it is told something else. */
static int watch(void) {
    char line[64];
    double context;
    (void)start(&context);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        size_t wanted = strtoull(line, NULL, 10), unused = 0, total;
        bool seen = false, told = false;
        for (unsigned look = 1; !seen && !told; look++) {
            demand(cuda.memory(&unused, &total), "cuMemGetInfo");
            seen = unused >= wanted;
            told = look % LOOKS == 0 && more_to_read();
        }
        if (seen)
            printf("free %.0f\n", now());
        else
            puts("missed");
    }
    return 0;
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count == 3 && strcmp(words[1], "costs") == 0) return costs(strtoull(words[2], NULL, 10));
    if (count > 2 && strcmp(words[1], "hold") == 0) return hold(words + 2, count - 2, false);
    if (count > 2 && strcmp(words[1], "wait") == 0) return hold(words + 2, count - 2, true);
    if (count == 2 && strcmp(words[1], "watch") == 0) return watch();
    fprintf(stderr, "usage: card costs TOO_MUCH | card hold SIZE... | card wait SIZE... | card watch\n");
    return 2;
}
