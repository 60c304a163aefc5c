/* SPDX-License-Identifier: Apache-2.0
 *
 * UUIDs of devices as the driver and NVML write them: "GPU-01234567-0123-0123-0123-0123456789ab".
 */
#ifndef CONVGPU_UUID_TEXT_H
#define CONVGPU_UUID_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum { UUID_BYTES = 16, UUID_TEXT_SIZE = sizeof "GPU-01234567-0123-0123-0123-0123456789ab" };

void uuid_to_text(const uint8_t uuid[UUID_BYTES], char text[UUID_TEXT_SIZE]);

/* Reads the 32 hexadecimal digits behind the first '-' ("MIG-" will do as well). False, with some bytes
 * written, for other text; what stands behind the digits is not read. */
bool uuid_parse(const char *text, uint8_t uuid[UUID_BYTES]);

#endif
