/* SPDX-License-Identifier: Apache-2.0 */
#include "calls/live_memory.h"

#include "accounting/context_growth.h"
#include "accounting/small_pages.h"
#include "exports/descriptors.h"
#include "exports/kept.h"
#include "exports/told.h"

enum { PARTS_SHIFT = 58, PAGE = 2 << 20 };
_Static_assert(LIVE_PARTS == 1 << (64 - PARTS_SHIFT), "as many as the hash tells apart");

struct allocations live_memory[LIVE_PARTS];
/* Of those that are shared, by address: `value` is the name of their descriptors. */
static struct allocations names = ALLOCATIONS_INITIALIZER;

struct allocations *live_memory_part(CUdeviceptr address) {
    return &live_memory[address * 0xD6E8FEB86659FD93u >> PARTS_SHIFT];
}

uint64_t live_memory_leave(const struct allocation *entry) {
    struct allocation name;
    int device = (int)entry->device;
    if (entry->hidden) growth_show(device, entry->size);
    if (!entry->shared || !allocations_remove(&names, entry->address, &name))
        return small_pages_leave(device, entry->address, entry->size);
    kept_charge(name.value, device, entry->address, entry->size);
    return 0;
}

/* The allocation that an address lies in, by the driver. False: none. */
static bool find(CUdeviceptr at, CUdeviceptr *base, size_t *size) {
    return DRIVER(cuMemGetAddressRange_v2, base, size, at) == CUDA_SUCCESS && *size > 0;
}

bool live_memory_mark_shared(CUdeviceptr address, size_t size) {
    struct allocation entry, replaced;
    CUdeviceptr base;
    size_t length;
    bool any = false;
    for (CUdeviceptr at = address; at < address + size && find(at, &base, &length); at = base + length) {
        if (!allocations_find(live_memory_part(base), base, &entry)) continue;
        any = true;
        if (entry.shared) continue;
        struct allocation name = {.address = base, .value = descriptors_new_name()};
        if (allocations_insert(&names, name, &replaced))
            (void)allocations_share(live_memory_part(base), base);
    }
    return any;
}

/* What stays of small allocations, is the page that they share. */
static uint64_t whole_pages(uint64_t size) {
    return (size + PAGE - 1) / PAGE * PAGE;
}

bool live_memory_share(CUdeviceptr address, size_t size, int descriptor) {
    CUdeviceptr base;
    size_t length;
    struct allocation name, entry;
    bool all = true;
    for (CUdeviceptr at = address; at < address + size && find(at, &base, &length); at = base + length)
        if (allocations_find(&names, base, &name) && allocations_find(live_memory_part(base), base, &entry))
            all = told_watch(name.value, (int)entry.device, whole_pages(entry.size), descriptor) && all;
    return all;
}

void live_memory_reset(void) {
    for (int part = 0; part < LIVE_PARTS; part++) allocations_reset(&live_memory[part]);
    allocations_reset(&names);
}
