/* SPDX-License-Identifier: Apache-2.0 */
#include "base/background_thread.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

enum { STACK_SIZE = 256 * 1024 };

static int add_thread_locals(struct dl_phdr_info *object, size_t size, void *sum) {
    (void)size;
    for (int index = 0; index < object->dlpi_phnum; index++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[index];
        if (part->p_type == PT_TLS) *(size_t *)sum += part->p_memsz + part->p_align;
    }
    return 0;
}

/* glibc takes the thread-local variables of the program and of its libraries out of a thread's stack, and
 * only where next to nothing would be left is that an error. It takes less than the sum, as those of
 * libraries that are loaded later lie elsewhere. The loader's lock, which is taken here, is a leaf: it is
 * held while the list of objects changes, and not while their constructors run. */
static size_t stack_size(void) {
    size_t sum = STACK_SIZE;
    dl_iterate_phdr(add_thread_locals, &sum);
    return sum;
}

/* What else glibc may take (a tunable says how much it keeps for libraries that come later) needs the usual
 * size. */
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
    pthread_attr_setstacksize(&attributes, stack_size());
    int error = pthread_create(&thread, &attributes, body, NULL);
    if (error == EINVAL && pthread_attr_setstacksize(&attributes, usual) == 0)
        error = pthread_create(&thread, &attributes, body, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}
