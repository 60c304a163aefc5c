/* SPDX-License-Identifier: Apache-2.0
 *
 * libconvgpu-page.so: the scheduler's half of the shared page, for Python through ctypes, which has no
 * atomics. `page` is the address of a writable mapping of sizeof(struct convgpu_page) bytes. A device row
 * that the page does not have is an error of the caller: nothing is read or written, and 0 is returned.
 */
#include <convgpu/page.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void convgpu_page_init(void *page, uint32_t device_count);
EXPORTED void convgpu_page_lease(void *page, uint32_t device, uint64_t size);
EXPORTED uint64_t convgpu_page_take_all(void *page, uint32_t device);
EXPORTED uint64_t convgpu_page_read(void *page, uint32_t device);
EXPORTED void convgpu_page_want(void *page, uint32_t device, int wanted);
EXPORTED void convgpu_page_tell(void *page, uint32_t device, uint64_t limit, int alone);

/* The bound is ours, not page->device_count: the process can write the page. */
static struct convgpu_word *word_of(void *page, uint32_t device) {
    struct convgpu_page *shared = page;
    return device < CONVGPU_MAX_DEVICES ? &shared->device[device] : NULL;
}

void convgpu_page_init(void *page, uint32_t device_count) {
    struct convgpu_page *shared = page;
    memset(shared, 0, sizeof *shared);
    shared->magic = CONVGPU_PAGE_MAGIC;
    shared->version = CONVGPU_PAGE_VERSION;
    shared->device_count = device_count;
}

void convgpu_page_lease(void *page, uint32_t device, uint64_t size) {
    struct convgpu_word *word = word_of(page, device);
    if (word) convgpu_word_lease(word, size);
}

uint64_t convgpu_page_take_all(void *page, uint32_t device) {
    struct convgpu_word *word = word_of(page, device);
    return word ? convgpu_word_take_all(word) : 0;
}

uint64_t convgpu_page_read(void *page, uint32_t device) {
    struct convgpu_word *word = word_of(page, device);
    return word ? convgpu_word_read(word) : 0;
}

void convgpu_page_want(void *page, uint32_t device, int wanted) {
    struct convgpu_word *word = word_of(page, device);
    if (word) convgpu_word_want(word, wanted != 0);
}

void convgpu_page_tell(void *page, uint32_t device, uint64_t limit, int alone) {
    struct convgpu_word *word = word_of(page, device);
    if (word) convgpu_word_tell(word, limit, alone != 0);
}
