/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinned memory. Where the tables that it needs cannot be had, it is given up again.
 */
#include "mapped/page_tables.h"

#include "accounting/context_growth.h"
#include "base/fork_reset.h"
#include "code/sample.h"

#include <stdatomic.h>

#define TABLE UINT64_C(4096)
#define STEP  (UINT64_C(8) << 20)
enum { PAGES = 512 };

static _Atomic uint64_t unmeasured; /* bytes of tables that may have come, of all devices */

static bool add(uint64_t size) {
    if ((unmeasured += size) < STEP) return false;
    unmeasured = 0;
    return true;
}

/* Of all devices: what is pinned, is mapped for each that has a context. What came with the calls before is
 * there already: it is measured whatever the free memory did during this one. */
static CUresult measure(const char *call) {
    struct sample now = sample_take();
    CUresult result = now.device < 0 ? CUDA_SUCCESS : growth_charge_now(now.device, call);
    if (result == CUDA_SUCCESS) result = growth_charge_elsewhere(now.device, call);
    if (result != CUDA_SUCCESS) unmeasured = STEP; /* nor is the next one let through */
    return result;
}

CUresult page_tables_mapped(const char *call) {
    return add(TABLE) ? measure(call) : CUDA_SUCCESS;
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
    if (result != CUDA_SUCCESS || !add(pinning->size / PAGES + TABLE)) return result;
    result = measure(call);
    if (result == CUDA_SUCCESS) return result;
    undo(pinning);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult free_host(struct pinning *pinning) {
    return DRIVER(cuMemFreeHost, pinning->address);
}

static CUresult unregister(struct pinning *pinning) {
    return DRIVER(cuMemHostUnregister, pinning->address);
}

static CUresult attempt_alloc(struct pinning *pinning) {
    return DRIVER(cuMemHostAlloc, &pinning->address, pinning->size, pinning->flags);
}

CUresult hooked_cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    struct pinning pinning = {.size = size, .flags = flags};
    CUresult result = pin_memory(&pinning, "cuMemHostAlloc", attempt_alloc, free_host);
    if (result == CUDA_SUCCESS) *address = pinning.address;
    return result;
}

static CUresult attempt_alloc_host(struct pinning *pinning) {
    return DRIVER(cuMemAllocHost_v2, &pinning->address, pinning->size);
}

CUresult hooked_cuMemAllocHost_v2(void **address, size_t size) {
    struct pinning pinning = {.size = size};
    CUresult result = pin_memory(&pinning, "cuMemAllocHost", attempt_alloc_host, free_host);
    if (result == CUDA_SUCCESS) *address = pinning.address;
    return result;
}

static CUresult attempt_alloc_host_1(struct pinning *pinning) {
    return DRIVER(cuMemAllocHost, &pinning->address, (unsigned)pinning->size);
}

CUresult hooked_cuMemAllocHost(void **address, unsigned size) {
    struct pinning pinning = {.size = size};
    CUresult result = pin_memory(&pinning, "cuMemAllocHost", attempt_alloc_host_1, free_host);
    if (result == CUDA_SUCCESS) *address = pinning.address;
    return result;
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
    unmeasured = 0;
}
RESET_IN_CHILD(page_tables_reset);
