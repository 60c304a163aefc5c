/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinned memory. Where the tables that it needs cannot be had, it is given up again.
 */
#include "mapped/page_tables.h"

#include "accounting/allocations.h"
#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "base/fork_reset.h"
#include "code/sample.h"

#include <stdatomic.h>

#define TABLE UINT64_C(4096)
#define STEP  (UINT64_C(8) << 20)
enum { PAGES = 512 };

static _Atomic uint64_t unmeasured; /* bytes of tables that may have come, of all devices */
static _Atomic uint64_t freed;      /* bytes of tables that have gone, and may be charged */
static struct allocations pinned = ALLOCATIONS_INITIALIZER; /* by address; `value`: bytes of tables */

/* Returns all of them if it is time to measure, else 0. */
static uint64_t add(uint64_t size) {
    if ((unmeasured += size) < STEP) return 0;
    return atomic_exchange(&unmeasured, 0);
}

/* What was not measured yet is not charged, and need not be. */
static void subtract(uint64_t size) {
    uint64_t had = unmeasured, gone = 0;
    do gone = size < had ? size : had;
    while (!atomic_compare_exchange_weak(&unmeasured, &had, had - gone));
    freed += size - gone;
}

/* Of all devices: what is pinned, is mapped for each that has a context. What came with the calls before is
 * there already: it is measured whatever the free memory did during this one. */
static CUresult measure(const char *call) {
    struct sample now = sample_take();
    CUresult result = now.device < 0 ? CUDA_SUCCESS : growth_charge_now(now.device, call);
    return result == CUDA_SUCCESS ? growth_charge_elsewhere(now.device, call) : result;
}

/* So much came with this call. If that cannot be had and the call is undone, the rest is there still. */
static CUresult come(uint64_t size, const char *call) {
    uint64_t step = add(size);
    if (step == 0 || measure(call) == CUDA_SUCCESS) return CUDA_SUCCESS;
    unmeasured += step > size ? step - size : 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult page_tables_mapped(const char *call) {
    return come(TABLE, call);
}

void page_tables_unmapped(void) {
    subtract(TABLE);
}

void page_tables_fell(void) {
    if (freed < STEP) return;
    freed = 0;
    growth_fell_elsewhere(DEVICE_UNKNOWN);
}

/* One call that pins memory, or one that lets go of it. */
struct pinning {
    void *address;
    size_t size;
    unsigned flags;
};
typedef CUresult pin(struct pinning *pinning);

static CUresult pin_memory(struct pinning *pinning, const char *call, pin *attempt, pin *undo) {
    CUresult result = attempt(pinning);
    if (result != CUDA_SUCCESS) return result;
    struct allocation replaced,
        entry = {.address = (uint64_t)(uintptr_t)pinning->address, .value = pinning->size / PAGES + TABLE};
    result = come(entry.value, call);
    if (result == CUDA_SUCCESS)
        (void)allocations_insert(&pinned, entry, &replaced);
    else
        undo(pinning);
    return result;
}

/* Once the driver has let go of it, another thread may pin memory there. */
static CUresult unpin(void *address, pin *attempt) {
    struct allocation replaced, entry;
    bool known = address && allocations_remove(&pinned, (uint64_t)(uintptr_t)address, &entry);
    CUresult result = attempt(&(struct pinning){.address = address});
    if (!known) return result;
    if (result != CUDA_SUCCESS) {
        (void)allocations_insert(&pinned, entry, &replaced);
        return result;
    }
    subtract(entry.value);
    page_tables_fell();
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

static void page_tables_reset(void) {
    unmeasured = freed = 0;
    allocations_reset(&pinned);
}
RESET_IN_CHILD(page_tables_reset);
