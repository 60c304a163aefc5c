/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of kernels whose launch was looked at, or that were put into a graph: what a graph's node
 * takes depends on them (graphs/contents.c). The driver is asked once for each handle.
 */
#ifndef CONVGPU_PARAMETERS_H
#define CONVGPU_PARAMETERS_H

#include "tables/driver.h"

#include <stdbool.h>

/* Bytes of a kernel's parameters; `library`: the handle is one of a library's. Of a driver that does not tell
 * (before CUDA 12.4), the most that there was then. */
uint64_t parameters_of(word function, bool library);

/* Whether the driver tells. */
bool parameters_are_told(void);

/* The most that was answered so far. */
uint64_t parameters_most(void);

/* The handle may name another function from now on. */
void parameters_forget(word function);

#endif
