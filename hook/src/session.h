/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of the hook in a process: nothing happens before the first CUDA call, then one connection, and a
 * fresh start in the child of a fork.
 */
#ifndef CONVGPU_SESSION_H
#define CONVGPU_SESSION_H

#include <stdbool.h>

/* Connects if that has not happened. False, after one line on stderr, when there is no scheduler. */
bool session_ready(void);

#endif
