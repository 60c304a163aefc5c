/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler is told of each descriptor by which anybody may have memory of ours: when this process ends,
 * that stays on the device, and the driver counts it for nobody. It takes a copy of an epoll instance of
 * ours, which knows until the last descriptor is closed (docs/decisions/0207).
 */
#ifndef CONVGPU_TOLD_H
#define CONVGPU_TOLD_H

#include <stdbool.h>
#include <stdint.h>

/* Tells that the driver is about to make a descriptor of at most `size` bytes of the device (UINT64_MAX: it
 * is not known how many): who kills this process before told_watch() has returned may have that already.
 * Returns a name for told_expected(), 0 when nobody hears of it. */
uint64_t told_expect(int device, uint64_t size);

/* What was expected is watched, or there is none. */
void told_expected(uint64_t name);

/* descriptors_watch(), and tells of `size` bytes of the device (DEVICE_UNKNOWN: of none) as long as anybody
 * has a file of that name open. Waits for the scheduler to have noted it, 5 s at most. */
bool told_watch(uint64_t name, int device, uint64_t size, int descriptor);

/* What has that name is so large now; it never becomes smaller. Nothing where nobody has it any more. */
void told_grow(uint64_t name, uint64_t size);

#endif
