/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts take memory of the device (526 MiB on an H200), so they are charged: each made by cuCtxCreate, and
 * a device's primary context while it is active.
 */
#ifndef CONVGPU_CONTEXT_H
#define CONVGPU_CONTEXT_H

void context_reset(void);

#endif
