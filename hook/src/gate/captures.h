/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures of streams that are on their way. A synchronisation of a context by any thread breaks each of them
 * (measurements.md), so one of ours and a capture exclude each other: a capture waits until the
 * synchronisation has ended (capture_calls.c), and a synchronisation is not made while there is a capture.
 */
#ifndef CONVGPU_CAPTURES_H
#define CONVGPU_CAPTURES_H

#include "tables/driver.h"

/* Before a capture begins on the stream. False: a synchronisation of ours is on its way, and it must not
 * begin. captures_leave(): after it has ended or did not begin, or the stream was destroyed; nothing happens
 * for a stream that was not entered. */
bool captures_enter(CUstream stream);
void captures_leave(CUstream stream);

/* A number that changes with each end of a synchronisation of ours, and a wait until it is not `seen` any
 * more. Not inside the gate: the mover waits for who is inside, and ends synchronisations only after that. */
uint32_t captures_releases(void);
void captures_wait(uint32_t seen);

/* How many there are. */
uint32_t captures_count(void);

/* Before and after a synchronisation of ours. False: a capture is on its way, and it must not be made. */
bool captures_hold(void);
void captures_release(void);

#endif
