/* SPDX-License-Identifier: Apache-2.0
 *
 * Backed ranges that somebody else holds: another process, a network card, a multicast object. Their memory
 * cannot leave the device any more, so that the range becomes fixed, and counts as such.
 */
#ifndef CONVGPU_SHARING_H
#define CONVGPU_SHARING_H

#include "tables/driver.h"

/* Makes the range at the address fixed; waits while the process is stopped. CUDA_SUCCESS also when no backed
 * range is there. CUDA_ERROR_NOT_SUPPORTED: there is no room for so much fixed memory, which was said. */
CUresult sharing_fix(CUdeviceptr address, const char *call);

/* Whether a backed range is there: to the program it is memory of cuMemAlloc, which has no handle. */
bool sharing_is_backed(CUdeviceptr address);

#endif
