/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes over a UNIX stream socket to the scheduler. Signal handlers of the program run in these calls, which
 * go on afterwards, within the same timeout; SIGPIPE is never raised.
 */
#ifndef CONVGPU_SOCKET_IO_H
#define CONVGPU_SOCKET_IO_H

#include <stdbool.h>
#include <stddef.h>

/* From here on each connect, send and receive waits so long; then it fails with ETIMEDOUT. */
void socket_set_timeout(int socket, int seconds);

/* From here on each receive waits so long; 0: for as long as the connection lasts. */
void socket_set_receive_timeout(int socket, int seconds);

/* False with errno; ENAMETOOLONG for a path that no socket can have. */
bool socket_connect(int socket, const char *path);

/* Whether there is something to read, or the end of the connection, within so long; else false with errno. */
bool socket_wait(int socket, int seconds);

/* All of it, or false with errno. */
bool socket_send(int socket, const void *bytes, size_t size);

/* All of it, or false with errno; 0 at the end of the connection. */
bool socket_receive(int socket, void *bytes, size_t size);

/* What an errno value of these means, for people. */
const char *socket_describe_error(int error);

#endif
