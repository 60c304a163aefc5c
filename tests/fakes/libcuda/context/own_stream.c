/* SPDX-License-Identifier: Apache-2.0
 *
 * The default streams of threads. One is made with the first call of a thread, in a context, that is given
 * it, whatever that call does; it takes what a stream takes, and the context keeps it for another thread when
 * the thread ends. As seen on an H200 with driver 580.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "libcuda/graph/graph.h"
#include "libcuda/memory/pool.h"

struct own_stream {
    struct own_stream *next;
    struct stream *stream;
    uint64_t thread; /* 0: of one that has ended */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t end_of_thread;
static _Atomic uint64_t last_thread;
static _Thread_local uint64_t self;
static _Thread_local uint64_t last_life; /* of the context in which it was found last */

static void give(struct context *context) {
    for (struct own_stream *own = context->own; own != NULL; own = own->next) {
        if (own->thread == self) own->thread = 0;
    }
}

static void end_thread(void *unused) {
    (void)unused;
    pthread_mutex_lock(&driver.mutex);
    for (int device = 0; device < driver.device_count; device++) give(&driver.primary[device]);
    for (struct context *context = driver.contexts; context != NULL; context = context->next) give(context);
    last_life = 0;
    pthread_mutex_unlock(&driver.mutex);
}

static void make_key(void) {
    if (pthread_key_create(&end_of_thread, end_thread) != 0) abort(); /* this is a test double */
}

static struct own_stream *find(struct context *context, uint64_t thread) {
    struct own_stream *own = context->own;
    while (own != NULL && own->thread != thread) own = own->next;
    return own;
}

static struct own_stream *make(struct context *context) {
    struct own_stream *own = calloc(1, sizeof *own);
    if (own == NULL) abort();
    own->stream = stream_new(context);
    if (own->stream == NULL) {
        free(own);
        return NULL;
    }
    own->stream->blocking = true;
    own->next = context->own;
    context->own = own;
    return own;
}

struct stream *stream_own(struct context *context) {
    if (!context->alive) return NULL;
    pthread_once(&once, make_key);
    if (self == 0) self = atomic_fetch_add(&last_thread, 1) + 1;
    struct own_stream *own = find(context, self);
    if (own == NULL) own = find(context, 0);
    if (own == NULL) own = make(context);
    if (own == NULL) return NULL;
    own->thread = self;
    last_life = context->life;
    (void)pthread_setspecific(end_of_thread, context);
    return own->stream;
}

bool stream_own_is_known(const struct context *context) {
    return last_life == context->life && !context_is_green();
}

void stream_end_own(struct context *context) {
    while (context->own != NULL) {
        struct own_stream *own = context->own;
        context->own = own->next;
        if (own->stream->capture != NULL) capture_end(own->stream);
        handle_delete(own->stream);
        free(own);
    }
}

struct stream *stream_named(CUstream handle) {
    if (handle == NULL || handle == CU_STREAM_LEGACY) return NULL;
    return handle == CU_STREAM_PER_THREAD ? stream_own(context_current())
                                          : handle_find(HANDLE_STREAM, handle);
}
