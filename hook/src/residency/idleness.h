/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this process is idle, as long as the scheduler wants to know (WATCH): it has submitted nothing for
 * a while, and nothing that it submitted before runs. A long kernel is work. The mover's thread alone.
 */
#ifndef CONVGPU_IDLENESS_H
#define CONVGPU_IDLENESS_H

#include <stdbool.h>
#include <stdint.h>

/* From now (ns) on the scheduler is told, or is not. */
void idleness_watch(bool on, uint64_t now);

/* Looks, and tells what has changed. True: this is to be called again soon. */
bool idleness_tend(uint64_t now);

#endif
