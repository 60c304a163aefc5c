/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts: parts of a device's multiprocessors in its primary context.
 */
#ifndef CONVGPU_GREEN_CONTEXT_H
#define CONVGPU_GREEN_CONTEXT_H

#include "tables/driver.h"

/* The context with which memory that is made in `context` dies: itself, or the primary one. */
CUcontext green_context_owner(CUcontext context);

#endif
