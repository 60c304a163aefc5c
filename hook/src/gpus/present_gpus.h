/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs that this container has, found without the driver, which has not begun yet: the cards of the
 * kernel's driver whose device files are here. A container's runtime makes those files, one for each GPU that
 * the container gets.
 */
#ifndef CONVGPU_PRESENT_GPUS_H
#define CONVGPU_PRESENT_GPUS_H

#include "gpus/uuid_text.h"

/* Writes their UUIDs and returns how many; 0 when that is not known: no such driver, a card whose UUID it has
 * not read yet, more cards than `room`, or no device file. `cards` is /proc/driver/nvidia/gpus and `files`
 * /dev, without a slash at the end. Opens no device and allocates nothing. */
uint32_t present_gpus(const char *cards, const char *files, uint8_t (*uuid)[UUID_BYTES], uint32_t room);

#endif
