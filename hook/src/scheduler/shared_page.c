/* SPDX-License-Identifier: Apache-2.0
 *
 * libconvgpu-page.so: the scheduler's half of the shared page, for Python through ctypes, which has no
 * atomics. `page` is the address of a writable mapping of sizeof(struct convgpu_page) bytes. A device row
 * that the page does not have is an error of the caller: nothing is read or written, and 0 is returned.
 */
#include <convgpu/page.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void convgpu_page_init(void *page, uint32_t device_count, uint32_t flags);
EXPORTED void convgpu_page_lease(void *page, uint32_t device, uint64_t size);
EXPORTED void convgpu_page_lease_fixed(void *page, uint32_t device, uint64_t size);
EXPORTED uint64_t convgpu_page_take_all(void *page, uint32_t device);
EXPORTED uint64_t convgpu_page_read(void *page, uint32_t device);
EXPORTED void convgpu_page_arm(void *page, uint32_t device, int armed);
EXPORTED void convgpu_page_publish(void *page, uint32_t device, uint64_t limit, int alone);
EXPORTED uint32_t convgpu_page_trace(void *page, uint32_t device, int on, uint32_t calls);
EXPORTED uint32_t convgpu_page_able(void *page);
EXPORTED uint32_t convgpu_page_notice(void *page);

/* The bound is ours, not page->device_count: the process can write the page. */
static struct convgpu_slot *slot_of(void *page, uint32_t device) {
    struct convgpu_page *shared = page;
    return device < CONVGPU_MAX_DEVICES ? &shared->device[device] : NULL;
}

void convgpu_page_init(void *page, uint32_t device_count, uint32_t flags) {
    struct convgpu_page *shared = page;
    memset(shared, 0, sizeof *shared);
    shared->magic = CONVGPU_PAGE_MAGIC;
    shared->version = CONVGPU_PAGE_VERSION;
    shared->device_count = device_count;
    shared->flags = flags;
}

void convgpu_page_lease(void *page, uint32_t device, uint64_t size) {
    struct convgpu_slot *slot = slot_of(page, device);
    if (slot) convgpu_slot_lease(slot, size);
}

void convgpu_page_lease_fixed(void *page, uint32_t device, uint64_t size) {
    struct convgpu_slot *slot = slot_of(page, device);
    if (slot) atomic_fetch_add(&slot->fixed, size);
}

uint64_t convgpu_page_take_all(void *page, uint32_t device) {
    struct convgpu_slot *slot = slot_of(page, device);
    return slot ? convgpu_slot_take_all(slot) : 0;
}

uint64_t convgpu_page_read(void *page, uint32_t device) {
    struct convgpu_slot *slot = slot_of(page, device);
    return slot ? convgpu_slot_read(slot) : 0;
}

void convgpu_page_arm(void *page, uint32_t device, int armed) {
    struct convgpu_slot *slot = slot_of(page, device);
    if (slot) convgpu_slot_arm(slot, armed != 0);
}

void convgpu_page_publish(void *page, uint32_t device, uint64_t limit, int alone) {
    struct convgpu_slot *slot = slot_of(page, device);
    if (slot) convgpu_slot_publish(slot, limit, alone != 0);
}

uint32_t convgpu_page_trace(void *page, uint32_t device, int on, uint32_t calls) {
    struct convgpu_slot *slot = slot_of(page, device);
    return slot ? convgpu_slot_trace(slot, on != 0, calls) : 0;
}

uint32_t convgpu_page_notice(void *page) {
    return atomic_load(&((struct convgpu_page *)page)->notice);
}

uint32_t convgpu_page_able(void *page) {
    return atomic_load(&((struct convgpu_page *)page)->able);
}
