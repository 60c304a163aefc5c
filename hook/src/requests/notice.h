/* SPDX-License-Identifier: Apache-2.0
 *
 * What a paused thread says on stderr: that it waits, and how that ended. Written by that thread only, which
 * stands still anyway; never where the program has put something else in stderr's place, and never where
 * writing would block.
 */
#ifndef CONVGPU_NOTICE_H
#define CONVGPU_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

/* CONVGPU_NOTICE as the page tells it to the scheduler: milliseconds; 0: its own setting; UINT32_MAX: never.
 */
uint32_t notice_after(void);

/* Now, for notice_end(). */
uint64_t notice_clock(void);

void notice_begin(const char *why);

/* `began`: notice_clock() when the pause began. `accepted`: and not rejected. */
void notice_end(const char *call, uint64_t size, uint64_t began, bool accepted);

#endif
