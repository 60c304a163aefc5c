/* SPDX-License-Identifier: Apache-2.0 */
#include "base/background_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

enum { STACK_SIZE = 256 * 1024 };

/* A program with large thread-local variables, which lie on the stacks of threads, needs the usual size. */
bool background_thread(void *(*body)(void *)) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    size_t usual = 0;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_getstacksize(&attributes, &usual);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    int error = pthread_create(&thread, &attributes, body, NULL);
    if (error == EINVAL && pthread_attr_setstacksize(&attributes, usual) == 0)
        error = pthread_create(&thread, &attributes, body, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}
