/* SPDX-License-Identifier: Apache-2.0
 *
 * The answers to a program's questions about memory: the container's limit in place of the card's size.
 */
#include "calls/meminfo.h"

#include "accounting/device.h"
#include "scheduler/account.h"
#include "scheduler/channel.h"
#include "tables/driver.h"
#include "tables/registry.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { FRESH_MS = 10 };

/* What the scheduler said last: of the container, and of that by other processes. */
static pthread_mutex_t caching = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct usage {
    uint64_t limit, others;
    int64_t until; /* ms of CLOCK_MONOTONIC_COARSE; 0: it never said anything */
} cached[CONVGPU_MAX_DEVICES];

static uint64_t smaller(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

static int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* At most FRESH_MS old: a program that polls its memory would else poll the scheduler.
 * While that is away, what it said last. */
static struct usage query_usage(uint32_t device) {
    struct channel_answer answer;
    pthread_mutex_lock(&caching);
    struct usage usage = cached[device];
    pthread_mutex_unlock(&caching);
    if (milliseconds() < usage.until || channel_query(device, NULL, &answer) != CHANNEL_ANSWERED)
        return usage;
    uint64_t own = account_used(device);
    usage = (struct usage){.limit = answer.usage.limit, .until = milliseconds() + FRESH_MS};
    if (answer.usage.used > own) usage.others = answer.usage.used - own;
    pthread_mutex_lock(&caching);
    cached[device] = usage;
    pthread_mutex_unlock(&caching);
    return usage;
}

struct query_figures query_figures(uint32_t device) {
    bool alone;
    struct query_figures figures = {.limit = account_published_limit(device, &alone)};
    struct usage usage = {0};
    if (!alone) usage = query_usage(device);
    if (usage.until > 0) figures.limit = usage.limit;
    uint64_t used = account_used(device);
    figures.used = used > UINT64_MAX - usage.others ? UINT64_MAX : used + usage.others;
    return figures;
}

static void query_reset(void) {
    caching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(cached, 0, sizeof cached);
}
REGISTER_FAMILY(meminfo, .reset = query_reset);

/* What the container may have of a device: managed memory may be more than the device. */
static uint64_t most_of(uint64_t limit, uint64_t total) {
    return account_is_unified() ? limit : smaller(limit, total);
}

/* Puts the container's figures in place of the driver's; either pointer may be NULL, as for the driver. */
static CUresult query_limit(size_t *unused, size_t *total) {
    CUcontext context;
    int device;
    if (device_current(&context, &device) != CUDA_SUCCESS) return CUDA_SUCCESS;
    if (device < 0) {
        if (unused) *unused = 0; /* nothing can be had there; the size of the card is no secret */
        return CUDA_SUCCESS;
    }
    registry_reclaim(device, false);
    struct query_figures figures = query_figures((uint32_t)device);
    uint64_t most = total ? most_of(figures.limit, *total) : figures.limit;
    if (total) *total = most;
    if (unused) *unused = figures.used < most ? most - figures.used : 0;
    return CUDA_SUCCESS;
}

CUresult hooked_cuMemGetInfo_v2(size_t *unused, size_t *total) {
    CUresult result = DRIVER(cuMemGetInfo_v2, unused, total);
    return result != CUDA_SUCCESS ? result : query_limit(unused, total);
}

/* The form of CUDA 2 cannot say more than 4 GiB. */
CUresult hooked_cuMemGetInfo(unsigned *unused, unsigned *total) {
    size_t wide_unused = 0, wide_total = UINT64_MAX;
    CUresult result = DRIVER(cuMemGetInfo, unused, total);
    if (result != CUDA_SUCCESS) return result;
    result = query_limit(&wide_unused, &wide_total);
    if (result != CUDA_SUCCESS) return result;
    if (unused) *unused = (unsigned)smaller(wide_unused, *unused);
    if (total) *total = (unsigned)smaller(wide_total, *total);
    return CUDA_SUCCESS;
}

CUresult hooked_cuDeviceTotalMem_v2(size_t *total, CUdevice ordinal) {
    CUresult result = DRIVER(cuDeviceTotalMem_v2, total, ordinal);
    if (result != CUDA_SUCCESS) return result;
    int device = device_of_ordinal(ordinal);
    if (device >= 0) *total = most_of(account_limit((uint32_t)device), *total);
    return CUDA_SUCCESS;
}

CUresult hooked_cuDeviceTotalMem(unsigned *total, CUdevice ordinal) {
    CUresult result = DRIVER(cuDeviceTotalMem, total, ordinal);
    if (result != CUDA_SUCCESS) return result;
    int device = device_of_ordinal(ordinal);
    if (device >= 0) *total = (unsigned)smaller(account_limit((uint32_t)device), *total);
    return CUDA_SUCCESS;
}
