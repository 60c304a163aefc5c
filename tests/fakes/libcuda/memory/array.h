/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the bytes of an array lie, for copies. driver.mutex held.
 */
#ifndef SIMULATED_ARRAY_H
#define SIMULATED_ARRAY_H

#include <stdbool.h>

#include "libcuda/memory/array_api.h"

/* Row after row and layer after layer, at addresses that no program knows. */
struct array_bytes {
    uint64_t address;
    size_t width; /* bytes */
    size_t height, depth;
    unsigned element; /* bytes */
    bool flat;        /* an array of one dimension */
};

/* CUDA_ERROR_INVALID_HANDLE for what is no array; CUDA_ERROR_INVALID_VALUE for one that has no memory yet. */
CUresult array_find_bytes(CUarray handle, struct array_bytes *bytes);

#endif
