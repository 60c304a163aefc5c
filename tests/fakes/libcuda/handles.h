/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process got a handle for (streams, pools, ...), found by that handle: a foreign or stale one is
 * recognised without being looked into. driver.mutex held, everywhere.
 */
#ifndef SIMULATED_HANDLES_H
#define SIMULATED_HANDLES_H

#include <stddef.h>

enum handle_kind {
    HANDLE_STREAM,
    HANDLE_POOL,
    HANDLE_PHYSICAL,
    HANDLE_ARRAY,
    HANDLE_MIPMAP,
    HANDLE_GRAPH,
    HANDLE_NODE,
    HANDLE_GRAPH_EXEC,
    HANDLE_RESOURCES,
    HANDLE_GREEN,
    HANDLE_MODULE,
    HANDLE_LIBRARY,
    HANDLE_EVENT,
    HANDLE_MULTICAST,
};

/* First member of everything that has a handle. */
struct handle {
    enum handle_kind kind;
    struct handle *in_bucket;
};

/* Makes and enters an object of `size` zeroed bytes that begins with a struct handle. Returns NULL if the
 * process has no memory left. */
void *handle_new(enum handle_kind kind, size_t size);

/* The object, or NULL if the handle is not one of a living object of this kind. */
void *handle_find(enum handle_kind kind, const void *handle);

/* Makes the handle unknown, or known again, of an object that something else still refers to. */
void handle_forget(void *object);
void handle_remember(void *object);

/* Frees the object, whose handle was forgotten before. */
void handle_free(void *object);

/* Forgets and frees. */
void handle_delete(void *object);

#endif
