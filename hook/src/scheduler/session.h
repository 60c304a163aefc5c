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

/* Connects if that has not happened. False, after one line on stderr, when there is no scheduler; the next
 * call tries again. Any thread, holding no lock of the hook: takes `opening`, the outermost lock, across the
 * handshake (at most 10 s for each step). Preserves errno; no cancellation point. */
bool session_ready(void);

/* Whether session_ready() was true once in this process. Takes no lock; acquires what opening wrote. */
bool session_is_open(void);

/* The limit that the container's environment asks for: CONVGPU_MEMORY, or what Swarm reserved for the task of
 * the generic resource `gpumem`, in MiB. Empty when there is none. Takes no lock; reads the environment. */
void session_memory(char memory[CONVGPU_MEMORY_SIZE]);

/* The scheduler's socket: CONVGPU_SOCKET, or `scheduler.sock` beside this library, absolute so that a later
 * chdir() does not lose it. Cut to `room` bytes, NUL included. Takes no lock; may change errno. */
void session_socket(char *path, size_t room);

#endif
