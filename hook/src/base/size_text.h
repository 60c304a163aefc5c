/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONVGPU_SIZE_TEXT_H
#define CONVGPU_SIZE_TEXT_H

#include <stdint.h>

enum { SIZE_TEXT = 32 };

/* Writes bytes as people read them, as the command line does: 512MiB, 1.5GiB, 100B. Returns `text`. */
const char *size_text(char text[SIZE_TEXT], uint64_t size);

#endif
