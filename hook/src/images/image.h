/* SPDX-License-Identifier: Apache-2.0
 *
 * How much device memory the variables of an image take: of a cubin, of PTX, and of that part of a fat binary
 * which is for the current device. Not known of compressed parts, for nobody but the driver reads them.
 */
#ifndef CONVGPU_IMAGE_H
#define CONVGPU_IMAGE_H

#include <stdint.h>

/* Below this many bytes it is not worth knowing before: a measurement afterwards is enough. */
#define IMAGE_LEAST (UINT64_C(4) << 20)

/* Returns the bytes, in the driver's steps; 0 when they are not known, or fewer than IMAGE_LEAST. The image
 * is read through the kernel: one that is broken is the driver's to refuse. Keeps errno. */
uint64_t image_variables(const void *image);
uint64_t image_file_variables(const char *file);

#endif
