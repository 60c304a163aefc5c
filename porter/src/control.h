/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports to the scheduler on the control socket; any thread.
 */
#ifndef PORTER_CONTROL_H
#define PORTER_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "convgpu/carrier.h"

void control_open(int socket);

void control_moved(const struct convgpu_moved *moved);

void control_checkpointed(uint64_t session, bool restored, uint32_t error);

/* `kind`: GONE or BROKEN. */
void control_gone(uint32_t kind, uint64_t session, uint64_t size);

/* Reports the pool's figures, if they are not as they were at the last call. */
void control_pool(void);

#endif
