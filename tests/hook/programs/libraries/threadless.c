/* SPDX-License-Identifier: Apache-2.0
 *
 * A preloaded library: the system has no room for a detached thread, as those of the hook are.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument) {
    int detached = PTHREAD_CREATE_JOINABLE;
    if (attributes) pthread_attr_getdetachstate(attributes, &detached);
    if (detached == PTHREAD_CREATE_DETACHED) return EAGAIN;
    return ((int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(
        RTLD_NEXT, "pthread_create"))(thread, attributes, body, argument);
}
