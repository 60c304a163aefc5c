/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA program that tests drive line by line: `program DOOR`, where DOOR says how it finds the driver:
 * linked, dlsym, default (RTLD_DEFAULT), proc1, proc2 (cuGetProcAddress and _v2).
 * A line on stdin is `THREAD COMMAND ARGUMENTS`; each thread runs its commands in order, on its own, and
 * writes one line `THREAD RESULT VALUES` for each, RESULT being the CUresult (or 0).
 */
#include "program.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, LINE = 256, VALUES = 65536, KEPT = 32768 };

struct driver cuda;
static CUresult (*set_current)(CUcontext);
static void *library;
CUcontext shared_context;
static CUdeviceptr kept[KEPT];
static volatile sig_atomic_t signals_seen;
static int kick = SIGUSR1;

#ifdef LINKED
#define DECLARE_LINKED(symbol, base, since, stream, gate, parameters, arguments)                             \
    __attribute__((weak)) CUresult symbol parameters;
CONVGPU_HOOKED_CALLS(DECLARE_LINKED)
/* Weak: the simulated driver has not all that cuda.h has. */
#define DECLARE_LINKED_GATED(symbol, base, since, stream, words, on)                                         \
    __attribute__((weak)) CUresult symbol(CONVGPU_PARAMETERS_##words);
CONVGPU_GATED_CALLS(DECLARE_LINKED_GATED)
CONVGPU_STREAM_CALLS(DECLARE_LINKED_GATED)
CUresult cuCtxSetCurrent(CUcontext context);
#endif

static void *find_by_proc(const char *base, int since, enum convgpu_stream stream, bool second) {
    void *function = NULL;
    int status;
    uint64_t flags = stream == CONVGPU_STREAM_PTSZ ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    if (second)
        cuda.cuGetProcAddress_v2(base, &function, since, flags, &status);
    else
        cuda.cuGetProcAddress(base, &function, since, flags);
    return function;
}

void *driver_symbol(const char *symbol) {
    return dlsym(library ? library : RTLD_DEFAULT, symbol);
}

static void *find(const char *lookup, const char *symbol, const char *base, int since,
                  enum convgpu_stream stream) {
    bool first = strcmp(symbol, "cuGetProcAddress") == 0 || strcmp(symbol, "cuGetProcAddress_v2") == 0;
    if (strcmp(lookup, "default") == 0) return dlsym(RTLD_DEFAULT, symbol);
    if (strcmp(lookup, "dlsym") == 0 || since == 0 || (first && !cuda.cuGetProcAddress))
        return dlsym(library, symbol);
    return find_by_proc(base, since, stream, strcmp(lookup, "proc2") == 0);
}

static void open_lookup(const char *lookup) {
#ifdef LINKED
#define FIND_LINKED(symbol, base, since, stream, gate, parameters, arguments) cuda.symbol = symbol;
    (void)lookup;
    (void)find;
#define FIND_LINKED_GATED(symbol, base, since, stream, words, on)  cuda.symbol = symbol;
#define FIND_LINKED_PASSED(symbol, base, since, stream, words, on) cuda.passed.symbol = symbol;
    CONVGPU_HOOKED_CALLS(FIND_LINKED)
    CONVGPU_GATED_CALLS(FIND_LINKED_GATED)
    CONVGPU_STREAM_CALLS(FIND_LINKED_PASSED)
    set_current = cuCtxSetCurrent;
#else
    library = dlopen("libcuda.so.1", RTLD_NOW | (strcmp(lookup, "default") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    cuda.cuGetProcAddress =
        (CUresult (*)(const char *, void **, int, uint64_t))dlsym(library, "cuGetProcAddress");
    cuda.cuGetProcAddress_v2 =
        (CUresult (*)(const char *, void **, int, uint64_t, int *))dlsym(library, "cuGetProcAddress_v2");
#define FIND(symbol, base, since, stream, gate, parameters, arguments)                                       \
    cuda.symbol = (CUresult(*) parameters)find(lookup, #symbol, #base, since, CONVGPU_STREAM_##stream);
#define FIND_GATED(symbol, base, since, stream, words, on)                                                   \
    cuda.symbol = (CUresult (*)(CONVGPU_PARAMETERS_##words))find(lookup, #symbol, #base, since,              \
                                                                 CONVGPU_STREAM_##stream);
    CONVGPU_HOOKED_CALLS(FIND)
#define FIND_PASSED(symbol, base, since, stream, words, on)                                                  \
    cuda.passed.symbol = (CUresult (*)(CONVGPU_PARAMETERS_##words))find(lookup, #symbol, #base, since,       \
                                                                        CONVGPU_STREAM_##stream);
    CONVGPU_GATED_CALLS(FIND_GATED)
    CONVGPU_STREAM_CALLS(FIND_PASSED)
    set_current = (CUresult (*)(CUcontext))dlsym(library, "cuCtxSetCurrent");
#endif
#define FIND_DRIVER(symbol, parameters) cuda.symbol = (CUresult(*) parameters)driver_symbol(#symbol);
    CONVGPU_DRIVER_CALLS(FIND_DRIVER)
}

/* FILE:SYMBOL of a function. */
static void describe(void *function, char *text) {
    Dl_info info;
    if (!function || !dladdr(function, &info)) {
        strcpy(text, "none");
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(text, LINE, "%s:%s", slash ? slash + 1 : info.dli_fname, info.dli_sname ? info.dli_sname : "?");
}

static void where(char *values) {
    char text[LINE];
#define WHERE(symbol, base, since, stream, gate, parameters, arguments)                                      \
    describe((void *)cuda.symbol, text);                                                                     \
    values += sprintf(values, " %s=%s", #symbol, text);
#define WHERE_GATED(symbol, base, since, stream, words, on)                                                  \
    describe((void *)cuda.symbol, text);                                                                     \
    values += sprintf(values, " %s=%s", #symbol, text);
    CONVGPU_HOOKED_CALLS(WHERE)
#define WHERE_PASSED(symbol, base, since, stream, words, on)                                                 \
    describe((void *)cuda.passed.symbol, text);                                                              \
    values += sprintf(values, " %s=%s", #symbol, text);
    CONVGPU_GATED_CALLS(WHERE_GATED)
    CONVGPU_STREAM_CALLS(WHERE_PASSED)
}

/* ask BASE VERSION FLAGS: cuGetProcAddress_v2; ask1: the first form. */
static CUresult ask(const char *base, int version, uint64_t flags, bool second, char *values) {
    void *function = NULL;
    int status = -1;
    char text[LINE];
    CUresult result = second ? cuda.cuGetProcAddress_v2(base, &function, version, flags, &status)
                             : cuda.cuGetProcAddress(base, &function, version, flags);
    describe(function, text);
    sprintf(values, " %d %s", status, text);
    return result;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* bench COUNT LIVE: nanoseconds of one allocate and free of 2 MiB while LIVE small ones are held. */
static CUresult bench(int count, int live, char *values) {
    CUdeviceptr address;
    CUresult result = 0;
    for (int index = 0; index < live && !result; index++) result = cuda.cuMemAlloc_v2(&kept[index], 512);
    double start = seconds();
    for (int turn = 0; turn < count && !result; turn++) {
        result = cuda.cuMemAlloc_v2(&address, 2 << 20);
        if (!result) result = cuda.cuMemFree_v2(address);
    }
    sprintf(values, " %.0f", (seconds() - start) / count * 1e9);
    for (int index = 0; index < live; index++) cuda.cuMemFree_v2(kept[index]);
    return result;
}

/* fork: the child calls cuInit, retains, allocates SIZE, waits for SIGTERM if `stay`, and exits. */
static CUresult fork_child(size_t size, bool stay, char *values) {
    pid_t child = fork();
    if (child == 0) {
        CUcontext context;
        CUdeviceptr address;
        CUresult result = 0;
        if (size > 0) {
            result = cuda.cuInit(0);
            if (!result) result = cuda.cuDevicePrimaryCtxRetain(&context, 0);
            if (!result) result = set_current(context);
            if (!result) result = cuda.cuMemAlloc_v2(&address, size);
        }
        while (stay) pause();
        _exit(result);
    }
    int status = 0;
    if (!stay) waitpid(child, &status, 0);
    sprintf(values, " %d", stay ? child : WEXITSTATUS(status));
    return child < 0;
}

/* steal PATH: what a daemon does that closes all its files and opens others: each socket's number is PATH
 * now. */
static CUresult steal(const char *path, char *values) {
    int stolen = 0, other = open(path, O_RDWR);
    struct stat status;
    for (int descriptor = 3; descriptor < 1024 && other >= 0; descriptor++) {
        if (fstat(descriptor, &status) < 0 || !S_ISSOCK(status.st_mode)) continue;
        dup2(other, descriptor);
        values += sprintf(values, " %d", descriptor);
        stolen++;
    }
    return stolen == 1 ? 0 : -2;
}

static void handle_signal(int number) {
    (void)number;
    signals_seen++;
}

/* kickby NUMBER RESTART: from now on `kick` sends this signal. SIGUSR1, which had the only handler, has none.
 * With RESTART calls go on. */
static int handle_alone(int number, bool restart) {
    struct sigaction action = {.sa_handler = handle_signal, .sa_flags = restart ? SA_RESTART : 0};
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    kick = number;
    return sigaction(SIGUSR1, &ignored, NULL) + sigaction(number, &action, NULL);
}

/* mute: stderr is a pipe that is full, and that nobody reads. */
static int mute(void) {
    int ends[2];
    if (pipe(ends) < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0) return -2;
    while (write(ends[1], "....", 4) > 0) continue;
    return fcntl(ends[1], F_SETFL, 0) < 0 || dup2(ends[1], STDERR_FILENO) < 0 ? -2 : 0;
}

/* nofiles: no more may be opened, and poll() fails for a single descriptor. */
static int allow_no_files(void) {
    struct rlimit none = {0, 0};
    return setrlimit(RLIMIT_NOFILE, &none);
}

static CUresult run_memory(const char *command, size_t *number, char *values) {
    CUresult result = -1;
    CUdeviceptr address = 0x5a5a;
    size_t pitch = 77, unused = 77, total = 77;
    if (strcmp(command, "alloc") == 0) {
        result = cuda.cuMemAlloc_v2(&address, number[0]);
        sprintf(values, " %#lx", (unsigned long)address);
    } else if (strcmp(command, "managed") == 0) {
        result = cuda.cuMemAllocManaged(&address, number[0], (unsigned)number[1]);
        sprintf(values, " %#lx", (unsigned long)address);
    } else if (strcmp(command, "pitch") == 0) {
        result = cuda.cuMemAllocPitch_v2(&address, &pitch, number[0], number[1], 4);
        sprintf(values, " %#lx %zu", (unsigned long)address, pitch);
    } else if (strcmp(command, "null") == 0) {
        result = cuda.cuMemAlloc_v2(NULL, number[0]);
    } else if (strcmp(command, "free") == 0) {
        result = cuda.cuMemFree_v2(number[0]);
    } else if (strcmp(command, "info") == 0) {
        result = cuda.cuMemGetInfo_v2(&unused, &total);
        sprintf(values, " %zu %zu", unused, total);
    } else if (strcmp(command, "nullinfo") == 0) {
        result = cuda.cuMemGetInfo_v2(NULL, &total);
        sprintf(values, " %zu", total);
    } else if (strcmp(command, "infos") ==
               0) { /* infos COUNT: as often as that, and in how many milliseconds */
        double start = seconds();
        result = 0;
        for (size_t turn = 0; turn < number[0] && !result; turn++)
            result = cuda.cuMemGetInfo_v2(&unused, &total);
        sprintf(values, " %zu %zu %.0f", unused, total, (seconds() - start) * 1e3);
    } else if (strcmp(command, "total") == 0) {
        result = cuda.cuDeviceTotalMem_v2(&total, (int)number[0]);
        sprintf(values, " %zu", total);
    }
    return result;
}

static struct {
    pthread_t thread;
    FILE *lines, *input;
} threads[THREADS];

static CUresult run(const char *line, char *values) {
    char command[LINE] = "", word[LINE] = "", *end;
    size_t number[NUMBERS] = {0};
    int used = 0;
    sscanf(line, "%*d %s %n", command, &used);
    const char *rest = line + used;
    if (strcmp(command, "ask") == 0 || strcmp(command, "ask1") == 0) {
        sscanf(rest, "%s %zi %zi", word, &number[0], &number[1]);
        return ask(word, (int)number[0], number[1], command[3] == '\0', values);
    }
    if (strcmp(command, "steal") == 0) {
        sscanf(rest, "%s", word);
        return steal(word, values);
    }
    CUresult result = run_ipc(command, rest, values);
    if (result == -1) result = run_zero(command, rest, values);
    if (result != -1) return result;
    for (int index = 0; index < NUMBERS; index++, rest = end) number[index] = strtoull(rest, &end, 0);
    if (strcmp(command, "where") == 0) return where(values), 0;
    if (strcmp(command, "bench") == 0) return bench((int)number[0], (int)number[1], values);
    if (strcmp(command, "fork") == 0) return fork_child(number[0], false, values);
    if (strcmp(command, "spawn") == 0) return fork_child(number[0], true, values);
    if (strcmp(command, "kick") == 0) return pthread_kill(threads[number[0]].thread, kick);
    if (strcmp(command, "kickby") == 0) return handle_alone((int)number[0], number[1] > 0);
    if (strcmp(command, "mute") == 0) return mute();
    if (strcmp(command, "nofiles") == 0) return allow_no_files();
    if (strcmp(command, "signals") == 0) return sprintf(values, " %d", (int)signals_seen), 0;
    if (strcmp(command, "join") == 0)
        return set_current(shared_context); /* this thread uses the same context */
    result = run_memory(command, number, values);
    if (result == -1) result = run_pool(command, number, values);
    if (result == -1) result = run_virtual(command, number, values);
    if (result == -1) result = run_array_or_first_form(command, number, values);
    if (result == -1) result = run_graph(command, number, values);
    if (result == -1) result = run_pointer(command, number, values);
    if (result == -1) result = run_work(command, number, values);
    if (result == -1) result = run_copy(command, number, values);
    if (result == -1) result = run_module(command, number, values);
    if (result == -1) result = run_launch(command, number, values);
    if (result == -1) result = run_threads(command, number, values);
    return result == -1 ? run_context(command, number, values) : result;
}

static void *work(void *argument) {
    int index = (int)(size_t)argument;
    char line[LINE], values[VALUES];
    while (fgets(line, sizeof line, threads[index].lines)) {
        values[0] = '\0';
        CUresult result = run(line, values);
        printf("%d %d%s\n", index, result, values);
        fflush(stdout);
    }
    return NULL;
}

static void start(int index) {
    int ends[2];
    if (pipe(ends) < 0) exit(2);
    threads[index].lines = fdopen(ends[0], "r");
    threads[index].input = fdopen(ends[1], "w");
    pthread_create(&threads[index].thread, NULL, work, (void *)(size_t)index);
}

int main(int count, char **words) {
    char line[LINE];
    struct sigaction action = {.sa_handler = handle_signal}; /* no SA_RESTART: calls return EINTR */
    sigaction(SIGUSR1, &action, NULL);
    open_lookup(count > 1 ? words[1] : "linked");
    while (fgets(line, sizeof line, stdin)) {
        int index = atoi(line);
        if (index < 0 || index >= THREADS) return 2;
        if (!threads[index].input) start(index);
        fputs(line, threads[index].input);
        fflush(threads[index].input);
    }
    for (int index = 0; index < THREADS; index++) {
        if (!threads[index].input) continue;
        fclose(threads[index].input);
        pthread_join(threads[index].thread, NULL);
    }
    return 0;
}
