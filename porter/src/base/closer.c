/* SPDX-License-Identifier: Apache-2.0 */
#include "base/closer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define MOST_THREADS 16
#define PATIENCE_NS  20000000 /* of a thread, from when it has something to close */
#define AGAIN_NS     2000000  /* between signals from then on */

struct item {
    int descriptor;
    void *argument;
    struct item *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t added = PTHREAD_COND_INITIALIZER;
static struct item *first, **last = &first; /* under the lock, as what follows */
static unsigned waiting, idle, threads;
static void (*on_closed)(void *argument);

/* A wait for the peer of a socket ends with any signal that is handled. */
static void interrupt(int number) {
    (void)number;
}

static void arm(timer_t timer, bool on) {
    const struct itimerspec when = {.it_value.tv_nsec = on ? PATIENCE_NS : 0,
                                    .it_interval.tv_nsec = on ? AGAIN_NS : 0};
    timer_settime(timer, 0, &when, NULL);
}

static void *close_all(void *unused) {
    (void)unused;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    timer_t timer;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid); /* glibc 2.31 has no other name for it */
    bool timed = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
    bool armed = false; /* for as long as something is there to close */
    if (!timed) log_line("no timer for closes: %s", strerror(errno));
    pthread_mutex_lock(&lock);
    for (;;) {
        while (first == NULL) {
            if (armed) arm(timer, armed = false);
            idle++;
            pthread_cond_wait(&added, &lock);
            idle--;
        }
        struct item *item = first;
        first = item->next;
        if (first == NULL) last = &first;
        waiting--;
        pthread_mutex_unlock(&lock);
        if (timed && !armed) arm(timer, armed = true);
        close(item->descriptor);
        if (item->argument != NULL) on_closed(item->argument);
        free(item);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

/* The lock is held. */
static int add_thread(void) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, close_all, NULL);
    if (error != 0) return error;
    pthread_detach(thread);
    threads++;
    return 0;
}

bool closer_start(void (*closed)(void *argument)) {
    struct sigaction action = {.sa_handler = interrupt};
    on_closed = closed;
    sigaction(SIGURG, &action, NULL);
    pthread_mutex_lock(&lock);
    int error = add_thread();
    pthread_mutex_unlock(&lock);
    if (error != 0) log_line("no thread for closes: %s", strerror(error));
    return error == 0;
}

void closer_take(int descriptor, void *argument) {
    struct item *item = malloc(sizeof *item);
    if (item == NULL) {
        log_line("no memory to close a descriptor");
        _exit(1); /* the next porter goes on with the pool */
    }
    *item = (struct item){.descriptor = descriptor, .argument = argument};
    pthread_mutex_lock(&lock);
    *last = item;
    last = &item->next;
    waiting++;
    /* Without another thread what is there waits for those that there are. */
    if (waiting > idle && threads < MOST_THREADS) (void)add_thread();
    pthread_cond_signal(&added);
    pthread_mutex_unlock(&lock);
}
