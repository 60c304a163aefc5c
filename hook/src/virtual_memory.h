/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory management: cuMemCreate and what maps, unmaps, releases and shares it.
 */
#ifndef CONVGPU_VIRTUAL_MEMORY_H
#define CONVGPU_VIRTUAL_MEMORY_H

void virtual_memory_reset(void);

#endif
