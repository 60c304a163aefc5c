/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's connection to the scheduler: one socket, one service thread that reads answers and connects
 * again, and any number of threads that wait for an answer. Devices are numbers of account.h.
 *
 * Locks: `sending` (channel.c), then `listing` (requests.c); both are taken and released within a call, and
 * `sending` is held across a send, which waits at most for the socket's buffer. The caller may hold
 * session.c's `opening` and locks of calls/ and accounting/, none of scheduler/. No function reports by
 * errno, and errno may change.
 */
#ifndef CONVGPU_CHANNEL_H
#define CONVGPU_CHANNEL_H

#include "requests/requests.h"

#include <convgpu/protocol.h>
#include <stdbool.h>
#include <stdint.h>

/* Answers LIST with LISTED frames of this id, on the service thread, which it must not hold up. */
typedef void channel_lister(uint64_t id, uint32_t most);

/* Names it, once, in a file of a higher layer. */
#define REGISTER_LISTER(function)                                                                            \
    static channel_lister *const lister_registered __attribute__((section("convgpu_listers"), used)) =       \
        function

/* Connects for the first time and starts the service thread. All arguments are copied; `present` are rows
 * of HELLO. False after one line on stderr (only the first time) when no scheduler answers (at most 10 s for
 * each step), it refuses, or the thread cannot be made (EAGAIN). The session calls it under `opening`: one
 * thread at a time. */
bool channel_open(const char *path, const char *program, const char *memory,
                  const struct convgpu_held *present, uint32_t count);

/* Pauses the calling thread until the scheduler answers, however long that takes; it says so on stderr when
 * the scheduler explains the pause (requests/notice.h). Signal handlers run meanwhile, and one that asks for
 * the end of the program (requests/interrupt.h) has the allocation rejected. No cancellation point. `call` is
 * the name of the CUDA call. `flags`: CONVGPU_ALLOCATE_*. An accepted size is counted in the account before
 * this returns. */
enum channel_outcome channel_allocate(uint32_t device, uint64_t size, const char *call, uint32_t flags,
                                      struct channel_answer *answer);

/* Asks for the container's usage; `exported` (its `device` is filled in) or NULL: tells first of memory that
 * others may have, and the answer comes when the scheduler has noted it. CHANNEL_AWAY at once without a
 * connection, and after 5 s of silence. */
enum channel_outcome channel_query(uint32_t device, const struct convgpu_exported *exported,
                                   struct channel_answer *answer);

/* Reports `charged` bytes for contexts and `used` for the rest, and asks what the contexts take by the
 * driver's count. CHANNEL_AWAY as channel_query(). */
enum channel_outcome channel_context(uint32_t device, uint64_t charged, uint64_t used,
                                     struct channel_answer *answer);

/* Reports a free, with no answer. Without a connection nothing is sent: the next HELLO reports it. */
void channel_freed(uint32_t device);

enum { CHANNEL_LONGEST_TOLD = 8192 }; /* bytes */

/* Tells something that has no answer. False when away, or when the connection broke on it: what matters is
 * told again after the next WELCOME (orders.h). Takes `sending`; blocks only on the socket's buffer. */
bool channel_tell(enum convgpu_kind kind, const void *body, uint32_t size);

/* Handlers of pthread_atfork(). Before the fork no descriptor may be in the making: takes the connection's
 * `descriptors`, and holds it until one of the other two. */
void channel_before_fork(void);
void channel_in_parent(void);

/* In the child everything is forgotten and closed, the locks too, for the scheduler must see the end of the
 * parent's connection when the parent ends. */
void channel_in_child(void);

/* Sends a whole frame that answers a question of the scheduler; false without a connection. Takes `sending`,
 * and blocks while the scheduler does not read. */
bool channel_send(const void *frame, uint32_t size);

#endif
