/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket to the scheduler: connecting, the handshake, whole frames in and out. There is at most one
 * socket in a process. One thread at a time opens, receives and closes; senders are serialised by the
 * channel's `sending`. The only lock is `descriptors` (connection.c), a leaf, held while a descriptor is made
 * or closed, so that a fork sees none in the making. Calls restart after EINTR; none is a cancellation point
 * for a thread that session.c or the service thread runs.
 */
#ifndef CONVGPU_CONNECTION_H
#define CONVGPU_CONNECTION_H

#include <convgpu/page.h>
#include <convgpu/protocol.h>
#include <stdbool.h>
#include <sys/un.h>

struct connection_greeting {
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    struct convgpu_hello hello; /* held_count counts the rows of `held` */
    struct convgpu_held held[CONVGPU_MAX_DEVICES];
};

struct connection_welcome {
    uint32_t count;
    struct convgpu_device rows[CONVGPU_MAX_DEVICES];
    struct convgpu_page *page; /* mapped; the caller's to unmap */
};

/* `error`: an errno value; EPROTO for a malformed reply. */
struct connection_failure {
    bool refused; /* the scheduler sent FAILED with `text` */
    int error;
    char text[CONVGPU_TEXT_SIZE];
};

/* A received frame, longer bodies cut (nothing that we understand lies behind). */
struct connection_frame {
    struct convgpu_header header;
    uint32_t size; /* bytes of the body that are here */
    _Alignas(
        8) char body[sizeof(struct convgpu_welcome) + CONVGPU_MAX_DEVICES * sizeof(struct convgpu_device)];
};

/* Connects, says HELLO, reads WELCOME; waits at most 10 s for each. On failure the socket is closed and
 * *failure has FAILED's text or an errno value: connect()'s, ETIMEDOUT, ECONNRESET, EPROTO for a malformed
 * answer. */
bool connection_open(const struct connection_greeting *greeting, struct connection_welcome *welcome,
                     struct connection_failure *failure);

/* The same for the first connection of a process: a scheduler that is away for a moment is waited for, once.
 */
bool connection_open_first(const struct connection_greeting *greeting, struct connection_welcome *welcome,
                           struct connection_failure *failure);

/* Sends one frame: `header.size` bytes, body included. False with errno when the connection is broken, EPIPE
 * without SIGPIPE. The caller holds the channel's `sending`. */
bool connection_send(const void *frame, uint32_t size);

/* Blocks until a whole frame is there. False at the end of the connection and for a malformed frame (EPROTO).
 * The service thread's alone. */
bool connection_receive(struct connection_frame *frame);

/* The descriptor that came with the last frame, now the caller's to close, or -1. The service thread's. */
int connection_take_descriptor(void);

/* Whether the body is at least as long as its kind demands, and the kind one that a scheduler sends. Pure. */
bool connection_well_formed(const struct connection_frame *frame);

/* Copies the text of a FAILED or EXPLAINED as one printable line, NUL-terminated. Pure. */
void connection_text(const struct connection_frame *frame, char text[CONVGPU_TEXT_SIZE]);

/* Ends the connection for senders and the receiver; the descriptor stays until connection_close(). Any
 * thread; preserves errno. */
void connection_shutdown(void);

/* Closes the descriptor if it is still ours. The thread that opened, under `sending`. Takes `descriptors`. */
void connection_close(void);

/* Parts of channel.h's handlers: the first takes `descriptors`, the others release it or make it anew. */
void connection_before_fork(void);
void connection_in_parent(void);
void connection_in_child(void);

#endif
