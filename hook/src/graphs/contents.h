/* SPDX-License-Identifier: Apache-2.0
 *
 * What an executable graph of a graph will take, read from its nodes before the driver takes it.
 */
#ifndef CONVGPU_GRAPH_CONTENTS_H
#define CONVGPU_GRAPH_CONTENTS_H

#include "tables/driver.h"

#include <convgpu/page.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct graph_contents {
    uint64_t bound[CONVGPU_MAX_DEVICES]; /* bytes that its nodes could allocate when it is launched */
    CUdevice ordinal[CONVGPU_MAX_DEVICES];
    bool keeps[CONVGPU_MAX_DEVICES]; /* of these bytes some that no node of it frees */
    size_t allocations;              /* nodes that allocate */
    uint64_t work;       /* bytes that the instantiation takes for its nodes, at most; where it is made */
    uint64_t parameters; /* of these, for its kernels' */
};

/* Up to so many bytes of a kernel's parameters take no room of their own. */
enum { GRAPH_SMALL_PARAMETERS = 1000 };

/* CUDA_ERROR_OUT_OF_MEMORY: it allocates on a device without a limit here, or there is no memory to read it.
 */
CUresult graph_read(CUgraph graph, struct graph_contents *contents);

/* The same without the work, which takes less time. */
CUresult graph_read_bounds(CUgraph graph, struct graph_contents *contents);

#endif
