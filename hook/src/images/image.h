/* SPDX-License-Identifier: Apache-2.0
 *
 * What an image takes of the device beside its code: a cubin, PTX, and that part of a fat binary which is for
 * the current device. Not known of compressed parts, for nobody but the driver reads them.
 */
#ifndef CONVGPU_IMAGE_H
#define CONVGPU_IMAGE_H

#include <stdint.h>

/* Below this many bytes it is not worth knowing before: a measurement afterwards is enough. */
#define IMAGE_LEAST (UINT64_C(4) << 20)

struct image_needs {
    uint64_t variables; /* bytes, in the driver's steps; 0: not known, or fewer than IMAGE_LEAST */
    unsigned calls;     /* of the driver, by its kernels (driver_calls.h) */
};

/* The image is read through the kernel: one that is broken is the driver's to refuse. Keeps errno. */
struct image_needs image_needs(const void *image);
struct image_needs image_file_needs(const char *file);

#endif
