/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs do to processes: `life STEP...`, one after the other:
 *   hold=SIZE  calls cuInit, makes a context on device 0 and allocates
 *   exec       becomes the program of the following steps
 *   fork, vfork, spawn   a child does the following steps (after execve, for the last two), the parent waits
 * for ever daemon     a grandchild in a session of its own closes all its files and does them, the others end
 * At the end it waits for ever.
 */
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: error %d\n", what, result);
    exit(1);
}

static void hold(size_t size) {
    void *context, *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    uint64_t address;
    check(cuda == NULL, "dlopen");
    check(((int (*)(unsigned))dlsym(cuda, "cuInit"))(0), "cuInit");
    check(((int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0), "retain");
    check(((int (*)(void *))dlsym(cuda, "cuCtxSetCurrent"))(context), "use");
    check(((int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2"))(&address, size), "alloc");
}

static void wait_for_ever(void) {
    for (;;) pause();
}

/* Goes on as the child. */
static void leave_parent(pid_t child) {
    check(child < 0, "fork");
    if (child > 0) wait_for_ever();
}

static void become_daemon(void) {
    if (fork() > 0) _exit(0);
    setsid();
    if (fork() > 0) _exit(0);
    for (int descriptor = 0; descriptor < 1024; descriptor++) close(descriptor);
}

int main(int count, char **words) {
    pid_t child;
    for (int index = 1; index < count; index++) {
        const char *step = words[index];
        char **rest = words + index; /* rest[0] is the step, where the program's name stands */
        if (strncmp(step, "hold=", 5) == 0) {
            hold(strtoull(step + 5, NULL, 0));
        } else if (strcmp(step, "exec") == 0) {
            execv("/proc/self/exe", rest);
            check(errno, "exec");
        } else if (strcmp(step, "fork") == 0) {
            leave_parent(fork());
        } else if (strcmp(step, "vfork") == 0) {
            child = vfork();
            if (child == 0) execv("/proc/self/exe", rest), _exit(127);
            leave_parent(child);
        } else if (strcmp(step, "spawn") == 0) {
            check(posix_spawn(&child, "/proc/self/exe", NULL, NULL, rest, environ), "spawn");
            wait_for_ever();
        } else if (strcmp(step, "daemon") == 0) {
            become_daemon();
        } else {
            return fprintf(stderr, "no step %s\n", step), 2;
        }
    }
    wait_for_ever();
}
