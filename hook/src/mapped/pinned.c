/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinned memory of the host, which the device has tables of. Where they cannot be had, it is given up again.
 */
#include "accounting/allocations.h"
#include "accounting/device.h"
#include "mapped/page_tables.h"
#include "tables/registry.h"

static struct allocations pinned = ALLOCATIONS_INITIALIZER; /* by address */

/* One call that pins memory, or one that lets go of it. */
struct pinning {
    void *address;
    size_t size;
    unsigned flags;
};
typedef CUresult pin(struct pinning *pinning);

static void end(const struct allocation *entry) {
    page_tables_unmap(entry->address, entry->size, true);
}

/* What was there died with its context. Without memory for the record it stays counted. */
static void enter(const struct allocation *entry) {
    struct allocation replaced = {0};
    (void)allocations_insert(&pinned, *entry, &replaced);
    if (replaced.address != 0) end(&replaced);
}

static CUresult pin_memory(struct pinning *pinning, const char *call, pin *attempt, pin *undo) {
    CUcontext context = NULL;
    int device;
    CUresult result = attempt(pinning);
    if (result != CUDA_SUCCESS) return result;
    (void)device_current(&context, &device);
    struct allocation entry = {.address = (uint64_t)(uintptr_t)pinning->address,
                               .size = pinning->size,
                               .context = (uint64_t)(uintptr_t)context >> 1};
    result = page_tables_map(call, entry.address, entry.size, true);
    if (result == CUDA_SUCCESS)
        enter(&entry);
    else
        undo(pinning);
    return result;
}

/* Once the driver has let go of it, another thread may pin memory there. */
static CUresult unpin(void *address, pin *attempt) {
    struct allocation entry;
    bool known = address && allocations_remove(&pinned, (uint64_t)(uintptr_t)address, &entry);
    CUresult result = attempt(&(struct pinning){.address = address});
    if (known && result == CUDA_SUCCESS) end(&entry);
    if (known && result != CUDA_SUCCESS) enter(&entry);
    return result;
}

static CUresult free_host(struct pinning *pinning) {
    return DRIVER(cuMemFreeHost, pinning->address);
}

CUresult hooked_cuMemFreeHost(void *address) {
    return unpin(address, free_host);
}

static CUresult unregister(struct pinning *pinning) {
    return DRIVER(cuMemHostUnregister, pinning->address);
}

CUresult hooked_cuMemHostUnregister(void *address) {
    return unpin(address, unregister);
}

static CUresult allocate(void **address, struct pinning *pinning, const char *call, pin *attempt) {
    CUresult result = pin_memory(pinning, call, attempt, free_host);
    if (result == CUDA_SUCCESS) *address = pinning->address;
    return result;
}

static CUresult attempt_alloc(struct pinning *pinning) {
    return DRIVER(cuMemHostAlloc, &pinning->address, pinning->size, pinning->flags);
}

CUresult hooked_cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    struct pinning pinning = {.size = size, .flags = flags};
    return allocate(address, &pinning, "cuMemHostAlloc", attempt_alloc);
}

static CUresult attempt_alloc_host(struct pinning *pinning) {
    return DRIVER(cuMemAllocHost_v2, &pinning->address, pinning->size);
}

CUresult hooked_cuMemAllocHost_v2(void **address, size_t size) {
    struct pinning pinning = {.size = size};
    return allocate(address, &pinning, "cuMemAllocHost", attempt_alloc_host);
}

static CUresult attempt_alloc_host_1(struct pinning *pinning) {
    return DRIVER(cuMemAllocHost, &pinning->address, (unsigned)pinning->size);
}

CUresult hooked_cuMemAllocHost(void **address, unsigned size) {
    struct pinning pinning = {.size = size};
    return allocate(address, &pinning, "cuMemAllocHost", attempt_alloc_host_1);
}

static CUresult attempt_register(struct pinning *pinning) {
    return DRIVER(cuMemHostRegister_v2, pinning->address, pinning->size, pinning->flags);
}

CUresult hooked_cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    struct pinning pinning = {address, size, flags};
    return pin_memory(&pinning, "cuMemHostRegister", attempt_register, unregister);
}

static CUresult attempt_register_1(struct pinning *pinning) {
    return DRIVER(cuMemHostRegister, pinning->address, pinning->size, pinning->flags);
}

CUresult hooked_cuMemHostRegister(void *address, size_t size, unsigned flags) {
    struct pinning pinning = {address, size, flags};
    return pin_memory(&pinning, "cuMemHostRegister", attempt_register_1, unregister);
}

static void pinned_mark(CUcontext context) {
    allocations_mark(&pinned, (uint64_t)(uintptr_t)context);
}

static void pinned_unmark(CUcontext context) {
    allocations_unmark(&pinned, (uint64_t)(uintptr_t)context);
}

/* Some of what died: the table is locked while it is shown. */
enum { SOME = 256 };
struct dead {
    uint64_t context;
    uint64_t addresses[SOME];
    unsigned count;
};

static void collect(const struct allocation *entry, void *argument) {
    struct dead *dead = argument;
    if (!entry->dying || entry->context != dead->context || dead->count == SOME) return;
    dead->addresses[dead->count++] = entry->address;
}

static void pinned_drop(CUcontext context, uint64_t *sizes) {
    struct dead dead = {.context = (uint64_t)(uintptr_t)context >> 1};
    struct allocation entry;
    (void)sizes;
    do {
        dead.count = 0;
        allocations_visit(&pinned, collect, &dead);
        for (unsigned index = 0; index < dead.count; index++) {
            if (!allocations_remove(&pinned, dead.addresses[index], &entry)) continue;
            if (entry.dying)
                end(&entry);
            else
                enter(&entry); /* another thread's, which came to that address meanwhile */
        }
    } while (dead.count == SOME);
}

static void pinned_reset(void) {
    allocations_reset(&pinned);
}
REGISTER_FAMILY(pinned, .reset = pinned_reset, .mark = pinned_mark, .unmark = pinned_unmark,
                .drop = pinned_drop);
