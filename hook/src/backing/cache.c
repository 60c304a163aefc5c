/* SPDX-License-Identifier: Apache-2.0 */
#include "backing/cache.h"

#include "base/fork_reset.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { ROOM = 64 };

/* Oldest first; guarded by the mapping lock. */
static struct kept {
    CUdeviceptr address;
    uint64_t size;
    int device;
    CUcontext context;
    int64_t since; /* ms of CLOCK_MONOTONIC_COARSE */
} entries[ROOM];
static int count;
static _Atomic bool any;

static int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool cache_put(CUdeviceptr address, uint64_t size, int device, CUcontext context) {
    if (count == ROOM) return false;
    entries[count++] = (struct kept){address, size, device, context, milliseconds()};
    any = true;
    return true;
}

static CUdeviceptr take_out(int index) {
    CUdeviceptr address = entries[index].address;
    memmove(&entries[index], &entries[index + 1], (size_t)(--count - index) * sizeof entries[0]);
    any = count > 0;
    return address;
}

CUdeviceptr cache_take(uint64_t size, int device, CUcontext context) {
    for (int index = count - 1; index >= 0; index--) {
        const struct kept *entry = &entries[index];
        if (entry->size == size && entry->device == device && entry->context == context)
            return take_out(index);
    }
    return 0;
}

CUdeviceptr cache_take_oldest(int device, int64_t age) {
    for (int index = 0; index < count; index++) {
        if (device != CACHE_ANY_DEVICE && entries[index].device != device) continue;
        return age == 0 || milliseconds() - entries[index].since >= age ? take_out(index) : 0;
    }
    return 0;
}

void cache_forget(CUdeviceptr address) {
    for (int index = 0; index < count; index++)
        if (entries[index].address == address) {
            (void)take_out(index);
            return;
        }
}

uint64_t cache_size(int device) {
    uint64_t bytes = 0;
    for (int index = 0; index < count; index++)
        if (entries[index].device == device) bytes += entries[index].size;
    return bytes;
}

bool cache_is_empty(void) {
    return !atomic_load_explicit(&any, memory_order_relaxed);
}

static void cache_reset(void) {
    count = 0;
    any = false;
}
RESET_IN_CHILD(cache_reset);
