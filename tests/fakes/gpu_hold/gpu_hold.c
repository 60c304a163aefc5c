/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu-hold: a program that takes device memory, holds it and ends. It reaches the driver as the CUDA runtime
 * does, by dlopen("libcuda.so.1") and cuGetProcAddress. One line per event on stdout, TIME in Unix seconds:
 *
 *   TIME init RESULT DURATION            cuInit returned (durations in seconds)
 *   TIME context RESULT DURATION         cuDevicePrimaryCtxRetain returned
 *   TIME memory FREE TOTAL               cuMemGetInfo, bytes
 *   TIME request SIZE                    about to call cuMemAlloc, bytes
 *   TIME allocate SIZE RESULT DURATION   it returned
 *   TIME hold HELD                       holding that many bytes from now on
 *   TIME check SIZE right|wrong          with --check: what was written there after it was allocated
 *   TIME free SIZE RESULT DURATION
 *   TIME exit STATUS                     0; 3 when CUDA said out of memory; 1 for any other error
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "arguments.h"

#define OUT_OF_MEMORY        2
#define CHECKED              ((size_t)1 << 20) /* bytes of each allocation that are written and compared */
#define STATUS_OUT_OF_MEMORY 3

typedef unsigned long long address;

static struct {
    int (*init)(unsigned flags);
    int (*error_name)(int error, const char **name);
    int (*device_get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*allocate)(address *address, size_t size);
    int (*free)(address address);
    int (*fill)(address address, unsigned char value, size_t size);
    int (*read)(void *to, address from, size_t size);
    int (*memory)(size_t *free, size_t *total);
} cuda;

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void __attribute__((format(printf, 1, 2))) report(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("%.6f ", now(CLOCK_REALTIME));
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
}

static const char *name_of(int error) {
    const char *name = NULL;
    return cuda.error_name(error, &name) == 0 && name != NULL ? name : "UNKNOWN";
}

static void finish(int status) {
    report("exit %d", status);
    exit(status);
}

/* Ends the program unless the call succeeded. */
static void demand(int error, const char *call) {
    if (error == 0) return;
    fprintf(stderr, "gpu-hold: %s: %s\n", call, name_of(error));
    finish(error == OUT_OF_MEMORY ? STATUS_OUT_OF_MEMORY : 1);
}

static void load_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "gpu-hold: %s\n", dlerror());
        exit(1);
    }
    int (*find)(const char *, void **, int, unsigned long long, int *) =
        dlsym(library, "cuGetProcAddress_v2");
    if (find == NULL) {
        fprintf(stderr, "gpu-hold: %s\n", dlerror());
        exit(1);
    }
    const struct {
        const char *name;
        void *target;
    } wanted[] = {
        {"cuInit", &cuda.init},
        {"cuGetErrorName", &cuda.error_name},
        {"cuDeviceGet", &cuda.device_get},
        {"cuDevicePrimaryCtxRetain", &cuda.retain},
        {"cuCtxSetCurrent", &cuda.set_current},
        {"cuMemAlloc", &cuda.allocate},
        {"cuMemFree", &cuda.free},
        {"cuMemsetD8", &cuda.fill},
        {"cuMemcpyDtoH", &cuda.read},
        {"cuMemGetInfo", &cuda.memory},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int status;
        if (find(wanted[i].name, wanted[i].target, 12000, 0, &status) == 0 && status == 0) continue;
        fprintf(stderr, "gpu-hold: the driver has no %s\n", wanted[i].name);
        exit(1);
    }
}

static void start(int ordinal) {
    double begin = now(CLOCK_MONOTONIC);
    int error = cuda.init(0);
    report("init %s %.6f", name_of(error), now(CLOCK_MONOTONIC) - begin);
    demand(error, "cuInit");
    int device;
    demand(cuda.device_get(&device, ordinal), "cuDeviceGet");
    void *context = NULL;
    begin = now(CLOCK_MONOTONIC);
    error = cuda.retain(&context, device);
    report("context %s %.6f", name_of(error), now(CLOCK_MONOTONIC) - begin);
    demand(error, "cuDevicePrimaryCtxRetain");
    demand(cuda.set_current(context), "cuCtxSetCurrent");
    size_t free_size, total;
    demand(cuda.memory(&free_size, &total), "cuMemGetInfo");
    report("memory %zu %zu", free_size, total);
}

static void pause_for(double seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static unsigned char value_of(size_t step) {
    return (unsigned char)(step % 251 + 1);
}

static void allocate(const struct arguments *arguments, size_t step, address *block) {
    size_t size = arguments->step[step];
    if (arguments->pause_before > 0) pause_for(arguments->pause_before);
    report("request %zu", size);
    double begin = now(CLOCK_MONOTONIC);
    int error = cuda.allocate(block, size);
    report("allocate %zu %s %.6f", size, name_of(error), now(CLOCK_MONOTONIC) - begin);
    demand(error, "cuMemAlloc");
    if (arguments->check)
        demand(cuda.fill(*block, value_of(step), size < CHECKED ? size : CHECKED), "cuMemsetD8");
}

/* Ends the program if the memory does not have what was written to it. */
static void check(const struct arguments *arguments, size_t step, address block) {
    static unsigned char bytes[CHECKED];
    size_t size = arguments->step[step] < CHECKED ? arguments->step[step] : CHECKED;
    demand(cuda.read(bytes, block, size), "cuMemcpyDtoH");
    bool right = true;
    for (size_t i = 0; i < size; i++) right &= bytes[i] == value_of(step);
    report("check %zu %s", size, right ? "right" : "wrong");
    if (!right) finish(1);
}

int main(int count, char **words) {
    struct arguments arguments;
    if (!arguments_parse(&arguments, count, words)) return 1;
    setvbuf(stdout, NULL, _IOLBF, 0); /* readers follow along, and a killed program loses nothing */
    load_cuda();
    start(arguments.device);
    address *block = calloc(arguments.step_count + 1, sizeof *block);
    if (block == NULL) return 1;
    size_t held = 0;
    for (size_t step = 0; step < arguments.step_count; step++) {
        allocate(&arguments, step, &block[step]);
        held += arguments.step[step];
    }
    report("hold %zu", held);
    if (arguments.hold > 0) pause_for(arguments.hold);
    if (arguments.wait_for_stdin) {
        char byte;
        while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') continue;
    }
    for (size_t step = 0; arguments.check && step < arguments.step_count; step++)
        check(&arguments, step, block[step]);
    for (size_t step = 0; arguments.free && step < arguments.step_count; step++) {
        double begin = now(CLOCK_MONOTONIC);
        int error = cuda.free(block[step]);
        report("free %zu %s %.6f", arguments.step[step], name_of(error), now(CLOCK_MONOTONIC) - begin);
        demand(error, "cuMemFree");
    }
    finish(0);
}
