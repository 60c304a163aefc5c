/* SPDX-License-Identifier: Apache-2.0
 *
 * The mutex of the shared state has to exclude two descriptors of one process, as libcuda.so.1 and
 * libnvidia-ml.so.1 have one each: the second waits until the first lets go.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simulated/lock.h"

static int second;
static atomic_int thread_id;
static atomic_bool passed;

static void *take_second(void *unused) {
    atomic_store(&thread_id, (int)syscall(SYS_gettid));
    lock_mutex(second);
    atomic_store(&passed, true);
    unlock_mutex(second);
    return unused;
}

/* Whether the kernel has the thread sleeping in fcntl. Says so only while it does. */
static bool sleeps_in_fcntl(int thread) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    char wanted[16];
    snprintf(wanted, sizeof wanted, "%d ", SYS_fcntl);
    return read && strncmp(text, wanted, strlen(wanted)) == 0;
}

int main(int count, char **words) {
    void *mapping;
    if (count != 2) return 2;
    int first = open_locked(words[1], 4096, &mapping);
    if (first < 0) return 2;
    unlock_mutex(first);
    second = open_locked(words[1], 4096, &mapping);
    if (second < 0) return 2;
    unlock_mutex(second);
    lock_mutex(first);
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_second, NULL) != 0) return 2;
    while (!atomic_load(&passed) && !sleeps_in_fcntl(atomic_load(&thread_id))) sched_yield();
    bool excluded = !atomic_load(&passed);
    unlock_mutex(first);
    pthread_join(thread, NULL);
    puts(excluded && atomic_load(&passed) ? "excluded" : "not excluded");
    return 0;
}
