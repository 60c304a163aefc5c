/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that waits for the devices, so that the mover's thread need not: a program may never finish.
 */
#ifndef CONVGPU_DRAIN_H
#define CONVGPU_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

/* Asks for a wait until everything that was submitted before is done. Returns its number; queue_wake() tells
 * of its end. Captures are held (captures.h) until it is over or given up. The mover's thread alone. 0: no
 * thread can be started. */
uint32_t drain_ask(void);

/* Whether the wait of this number is over, and whether it was made to its end. */
bool drain_is_over(uint32_t number);
bool drain_was_made(uint32_t number);

/* Held by whoever ends a context, so that none ends while it is waited for. */
void drain_lock(void);
void drain_unlock(void);

/* The result is not wanted any more: no further context is waited for. */
void drain_give_up(void);

#endif
