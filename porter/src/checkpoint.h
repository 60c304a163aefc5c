/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's checkpoint of a process that is stopped and whose memory is out: contexts and what else could
 * not leave piece by piece. The driver keeps the state of the process, so each step can be done again by
 * another porter.
 */
#ifndef PORTER_CHECKPOINT_H
#define PORTER_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

/* Has the driver take the process off its devices, or put it back, on a thread of its own; reports
 * CHECKPOINTED. Putting back waits for room on the devices. */
void checkpoint_begin(uint64_t session, int pid, bool restore);

/* A process begins: reports it if an earlier porter has taken it off, and lets it go on if that was killed
 * half way. */
void checkpoint_adopt(uint64_t session, int pid);

#endif
