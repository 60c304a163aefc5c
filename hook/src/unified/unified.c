/* SPDX-License-Identifier: Apache-2.0 */
#include "unified/unified.h"

#include "accounting/small_pages.h"
#include "base/fork_reset.h"
#include "base/log.h"
#include "scheduler/account.h"

#include <pthread.h>
#include <sys/mman.h>

enum { ATTACH_GLOBAL = 1, PREFER = 3, NON_BLOCKING = 1, FIRST_ROOM = 64 };
#define PAGE   ((uint64_t)2 << 20)
#define MARGIN ((uint64_t)128 << 20) /* left free on the device: contexts grow, modules are loaded */

/* What of an allocation was not brought to the device, for want of room. */
struct rest {
    CUdeviceptr allocation, address;
    uint64_t size;
    CUcontext context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the three; a leaf */
static struct rest *rests;
static size_t room, count;

bool unified_takes(uint64_t bytes) {
    return account_is_unified() && bytes > LARGEST_SMALL;
}

/* Bytes that the device has room for, in whole pages. */
static uint64_t room_on_device(void) {
    size_t unused = 0, total = 0;
    if (DRIVER(cuMemGetInfo_v2, &unused, &total) != CUDA_SUCCESS || unused <= MARGIN) return 0;
    return (unused - MARGIN) / PAGE * PAGE;
}

/* Brings memory to the device of the current context and waits for it, as cuMemAlloc does; on a stream of its
 * own, so that neither the program's work nor a capture of it is concerned. Says how much is there: a
 * prefetch that finds no room is ignored by the driver, and pages that do not come are brought by kernels. */
static uint64_t bring(CUdeviceptr address, uint64_t size) {
    CUdevice device;
    CUstream stream;
    uint64_t most = room_on_device();
    uint64_t brought = size < most ? size : most;
    if (brought == 0 || DRIVER(cuCtxGetDevice, &device) != CUDA_SUCCESS) return 0;
    if (DRIVER(cuStreamCreate, &stream, NON_BLOCKING) != CUDA_SUCCESS) return 0;
    CUresult result =
        DRIVER(cuMemPrefetchAsync, address, brought, (uint64_t)device, (uint64_t)(uintptr_t)stream);
    if (result == CUDA_SUCCESS) result = DRIVER(cuStreamSynchronize, stream);
    DRIVER(cuStreamDestroy_v2, stream);
    return result == CUDA_SUCCESS ? brought : 0;
}

static bool make_room(void) {
    if (count < room) return true;
    size_t wider = room ? room * 2 : FIRST_ROOM, row = sizeof *rests;
    void *grown = rests ? mremap(rests, room * row, wider * row, MREMAP_MAYMOVE)
                        : mmap(NULL, wider * row, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED) return false;
    rests = grown;
    room = wider;
    return true;
}

static void enter(struct rest rest) {
    pthread_mutex_lock(&lock);
    if (make_room()) rests[count++] = rest;
    pthread_mutex_unlock(&lock);
}

CUresult unified_allocate(CUdeviceptr *address, size_t size) {
    struct rest rest = {.size = size};
    CUdevice device;
    CUresult result = DRIVER(cuMemAllocManaged, address, size, ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS) return result;
    if (DRIVER(cuCtxGetDevice, &device) == CUDA_SUCCESS)
        DRIVER(cuMemAdvise, *address, size, PREFER, (uint64_t)device);
    uint64_t brought = bring(*address, size);
    if (brought == size || DRIVER(cuCtxGetCurrent, &rest.context) != CUDA_SUCCESS) return CUDA_SUCCESS;
    log_debug("%llu of %zu bytes of managed memory begin on the host.", (unsigned long long)(size - brought),
              size);
    rest.allocation = *address;
    rest.address = *address + brought;
    rest.size = size - brought;
    enter(rest);
    return CUDA_SUCCESS;
}

void unified_forget(CUdeviceptr address) {
    pthread_mutex_lock(&lock);
    for (size_t place = 0; place < count;)
        if (rests[place].allocation == address)
            rests[place] = rests[--count];
        else
            place++;
    pthread_mutex_unlock(&lock);
}

/* Takes the oldest rest of a context out of the table. */
static bool take_first(CUcontext context, struct rest *taken) {
    pthread_mutex_lock(&lock);
    size_t place = 0;
    while (place < count && rests[place].context != context) place++;
    bool found = place < count;
    if (found) {
        *taken = rests[place];
        count--;
        for (; place < count; place++) rests[place] = rests[place + 1];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void unified_freed(CUdeviceptr address) {
    struct rest rest;
    CUcontext context;
    if (!account_is_unified()) return;
    unified_forget(address);
    if (DRIVER(cuCtxGetCurrent, &context) != CUDA_SUCCESS || !take_first(context, &rest)) return;
    uint64_t brought = bring(rest.address, rest.size);
    rest.address += brought;
    rest.size -= brought;
    if (rest.size > 0) enter(rest);
}

static void unified_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    count = 0;
}
RESET_IN_CHILD(unified_reset);
