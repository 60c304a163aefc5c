/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the hook waits, it may hold a lock, or have charged what nobody would give back: a thread that is
 * cancelled there (pthread_cancel) ends later, at a cancellation point of its own.
 */
#ifndef CONVGPU_NO_CANCEL_H
#define CONVGPU_NO_CANCEL_H

#include <pthread.h>

static inline int no_cancel_begin(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void no_cancel_end(int before) {
    pthread_setcancelstate(before, &before);
}

#endif
