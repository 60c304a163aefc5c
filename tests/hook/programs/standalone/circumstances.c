/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs do beside CUDA, and what is done to them. Prints the result of each call, a line each.
 *   cancelled SIZE  each call by a thread that is to be cancelled, then again; SIZE is beyond the limit
 *   paused SIZE     an allocation that pauses, by a thread that is cancelled when a line comes on stdin
 *   pipe SIZE       nobody reads stderr any more
 *   files           no descriptor is left, then there are
 *   sockets         system calls are filtered: no sockets
 *   exit            frees, and allocates once more, when main has returned: in atexit and in a destructor
 * The program has LARGE bytes of thread-local variables.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local volatile char large[LARGE];
static void *cuda;
static size_t over;
static uint64_t address;

static int initialise(void) {
    return ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0);
}

static int use_context(void) {
    void *context;
    int result = ((int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0);
    return result ? result : ((int (*)(void *))dlsym(cuda, "cuCtxSetCurrent"))(context);
}

static int take(size_t size) {
    return ((int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2"))(&address, size);
}

static int allocate(void) {
    return take(4 << 20);
}

static int allocate_too_much(void) {
    return take(over);
}

static int release(void) {
    return ((int (*)(uint64_t))dlsym(cuda, "cuMemFree_v2"))(address);
}

static int (*const calls[])(void) = {initialise, use_context, allocate, release, allocate_too_much};
enum { CALLS = sizeof calls / sizeof *calls };

struct doing {
    int (*call)(void);
    int result;
};

/* Cancelled before it begins: it ends at the first cancellation point. */
static void *do_cancelled(void *argument) {
    struct doing *doing = argument;
    if (doing->call != initialise && doing->call != use_context) use_context();
    large[0] = 1;
    pthread_cancel(pthread_self());
    doing->result = doing->call();
    pthread_testcancel();
    return NULL;
}

static void be_cancelled(void) {
    for (int index = 0; index < CALLS; index++) {
        struct doing doing = {calls[index], -1};
        pthread_t thread;
        void *ended;
        pthread_create(&thread, NULL, do_cancelled, &doing);
        pthread_join(thread, &ended);
        printf("%d %d\n", doing.result, ended == PTHREAD_CANCELED);
    }
    for (int index = 0; index < CALLS; index++) printf("%d\n", calls[index]());
}

static void *do_paused(void *argument) {
    struct doing *doing = argument;
    use_context();
    doing->result = doing->call();
    pthread_testcancel();
    return NULL;
}

static void be_paused(void) {
    struct doing doing = {allocate_too_much, -1};
    pthread_t thread;
    void *ended;
    printf("%d\n", initialise());
    pthread_create(&thread, NULL, do_paused, &doing);
    getchar();
    pthread_cancel(thread);
    printf("%d\n", use_context());
    printf("%d\n", allocate());
    printf("%d\n", release());
    pthread_join(thread, &ended);
    printf("%d %d\n", doing.result, ended == PTHREAD_CANCELED);
}

static void have_no_reader(void) {
    int ends[2];
    if (pipe(ends) != 0) exit(3);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    for (int index = 0; index < CALLS; index++) printf("%d\n", calls[index]());
}

static void have_no_files(void) {
    struct rlimit limit, none;
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    printf("%d\n", initialise());
    setrlimit(RLIMIT_NOFILE, &limit);
    printf("%d\n", initialise());
}

static void have_no_sockets(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        exit(3);
    printf("%d\n", initialise());
}

static void go_on(void) {
    printf("%d\n", release());
    printf("%d\n", allocate());
}

static bool leaving;

__attribute__((destructor)) static void go_on_at_the_end(void) {
    if (leaving) go_on();
}

static void leave(void) {
    initialise();
    use_context();
    allocate();
    dlclose(cuda); /* which changes nothing: the hook holds it */
    leaving = atexit(go_on) == 0;
}

int main(int count, char **words) {
    if (count < 2 || !(cuda = dlopen("libcuda.so.1", RTLD_NOW))) return 2;
    over = count > 2 ? strtoull(words[2], NULL, 0) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(words[1], "cancelled") == 0) be_cancelled();
    if (strcmp(words[1], "paused") == 0) be_paused();
    if (strcmp(words[1], "pipe") == 0) have_no_reader();
    if (strcmp(words[1], "files") == 0) have_no_files();
    if (strcmp(words[1], "sockets") == 0) have_no_sockets();
    if (strcmp(words[1], "exit") == 0) leave();
    return 0;
}
