/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest parameters of the kernels whose launch was looked at, or that were put into a graph: what a
 * graph's node takes depends on them (graphs/contents.c), and asking for each node would take long.
 */
#ifndef CONVGPU_PARAMETERS_H
#define CONVGPU_PARAMETERS_H

#include "tables/driver.h"

/* `kernel`: the handle is one of a library's. */
void parameters_see(word function, bool kernel);

/* In bytes. Of a driver that does not tell (before CUDA 12.4), the most that there was then. */
uint64_t parameters_most(void);

#endif
