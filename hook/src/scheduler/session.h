/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of the hook in a process: nothing happens before the first CUDA call, then one connection, and a
 * fresh start in the child of a fork.
 */
#ifndef CONVGPU_SESSION_H
#define CONVGPU_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "convgpu/protocol.h"

/* Connects if that has not happened. False, after one line on stderr, when there is no scheduler. */
bool session_ready(void);

/* Whether that has happened. */
bool session_is_open(void);

/* The limit that the container's environment asks for: CONVGPU_MEMORY, or what Swarm reserved for the task of
 * the generic resource `gpumem`, in MiB. Empty when there is none. */
void session_memory(char memory[CONVGPU_MEMORY_SIZE]);

/* The scheduler's socket: CONVGPU_SOCKET, or `scheduler.sock` beside this library, absolute so that a later
 * chdir() does not lose it. */
void session_socket(char *path, size_t room);

#endif
