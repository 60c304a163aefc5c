/* SPDX-License-Identifier: Apache-2.0
 *
 * Closes what containers handed over, in threads of its own. The last close of a file waits for as long as
 * whoever made it likes: a TCP socket with SO_LINGER for hours, a file of FUSE for its server (decision 167).
 */
#ifndef PORTER_CLOSER_H
#define PORTER_CLOSER_H

#include <stdbool.h>

/* `closed` is called with what was given, in any thread. False: it logged why. */
bool closer_start(void (*closed)(void *argument));

/* Closes a descriptor, and then calls `closed` unless `argument` is NULL. Never waits; any thread. */
void closer_take(int descriptor, void *argument);

#endif
