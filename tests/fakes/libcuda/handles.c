/* SPDX-License-Identifier: Apache-2.0 */
#include "libcuda/handles.h"

#include <stdint.h>
#include <stdlib.h>

#define BITS 12u

static struct handle *buckets[1u << BITS];

static struct handle **bucket_of(const void *handle) {
    /* Fibonacci hashing; malloc aligns to 16 bytes. */
    uint64_t hash = (uint64_t)(uintptr_t)handle / 16 * UINT64_C(0x9e3779b97f4a7c15);
    return &buckets[hash >> (64 - BITS)];
}

void *handle_new(enum handle_kind kind, size_t size) {
    struct handle *handle = calloc(1, size);
    if (handle == NULL) return NULL;
    handle->kind = kind;
    handle_remember(handle);
    return handle;
}

void *handle_find(enum handle_kind kind, const void *handle) {
    struct handle *found = *bucket_of(handle);
    while (found != NULL && found != handle) found = found->in_bucket;
    return found != NULL && found->kind == kind ? found : NULL;
}

void handle_forget(void *object) {
    struct handle **link = bucket_of(object);
    while (*link != object) link = &(*link)->in_bucket;
    *link = (*link)->in_bucket;
}

void handle_remember(void *object) {
    struct handle *handle = object, **bucket = bucket_of(handle);
    handle->in_bucket = *bucket;
    *bucket = handle;
}

void handle_free(void *object) {
    free(object);
}

void handle_delete(void *object) {
    handle_forget(object);
    free(object);
}
