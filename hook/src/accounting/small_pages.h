/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations of up to 1 MiB share pages of 2 MiB of the device: the first one in a page takes all of it, the
 * last one freed gives it back. On an H200 (driver 580.159) the pages that the addresses of all live
 * allocations touch are what the driver's own count shows, to the byte. One lock of this file, a leaf, which
 * is taken in each function.
 */
#ifndef CONVGPU_SMALL_PAGES_H
#define CONVGPU_SMALL_PAGES_H

#include <stdbool.h>
#include <stdint.h>

enum { PAGE_OF_DEVICE = 2 << 20, LARGEST_SMALL = 1 << 20 };

/* Enters an allocation; *taken is what it took of the device: 0 when others lie in its pages; `size` for one
 * of more than LARGEST_SMALL bytes, which shares none and is not entered. False: no memory for the table. */
bool small_pages_enter(int device, uint64_t address, uint64_t size, uint64_t *taken);

/* Takes it out, and returns what it gave back; again `size` for a larger one. */
uint64_t small_pages_leave(int device, uint64_t address, uint64_t size);

/* Whether all pages of the allocation are there already. */
bool small_pages_hold(uint64_t address, uint64_t size);

/* Whether `size` bytes are unused in the pages of the device, though perhaps not in one piece. */
bool small_pages_could_hold(int device, uint64_t size);

void small_pages_reset(void);

#endif
