/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process (the hook) and the porter say to each other on a carrier, and what the porter and the
 * scheduler say on the porter's control socket. The porter is the scheduler's helper that copies pieces of
 * device memory to the host and back. The Python half of the control frames is
 * scheduler/convgpu/protocol/residency/porter.py; tests/contract compares the two.
 *
 * Both are UNIX sockets of type SOCK_SEQPACKET: one frame is one packet, and descriptors (SCM_RIGHTS) belong
 * to the packet they come with. Numbers are in host byte order, sizes are bytes, no struct has padding.
 *
 * A carrier is made by the scheduler, which sends one end to the process (CARRIER) and the other to the
 * porter (SESSION). When the porter ends, the carrier ends, and another CARRIER comes from the scheduler. The
 * process begins each carrier with HELD for every piece that is out, sends again each OUT and IN that had no
 * answer, and then READY. At READY the porter frees the copies of this process that were neither HELD nor
 * asked for by IN, so that an answer that was lost on the way leaves no copy behind. A piece is never in
 * neither place: its copy is complete before COPIED is sent, and is freed after FILLED was sent.
 */
#ifndef CONVGPU_CARRIER_H
#define CONVGPU_CARRIER_H

#include <stddef.h>
#include <stdint.h>

#define CONVGPU_CARRIER_VERSION 1u
#define CONVGPU_PIECE_SIZE      ((uint64_t)64 << 20) /* bytes; no piece is larger */
#define CONVGPU_PIECE_GRANULE   ((uint64_t)2 << 20)  /* bytes; the size of each piece is a multiple of it */
#define CONVGPU_CARRIER_DEPTH                                                                                \
    16u /* OUT and IN that may be without an answer; with more the porter closes the carrier */
#define CONVGPU_CARRIER_DEVICES 63u /* as CONVGPU_MAX_DEVICES of page.h */

/* Kinds of `struct convgpu_piece`: X(NAME, number). Below 16: from the process. */
#define CONVGPU_CARRIER_KINDS(X)                                                                             \
    X(OUT, 1)    /* with the piece's descriptor: copy it to the host */                                      \
    X(IN, 2)     /* with a descriptor of new memory: copy the piece into it */                               \
    X(FORGET, 3) /* the program freed the piece while it was out: drop its copy; has no answer */            \
    X(HELD, 4) /* begin of a carrier: this piece is out; answered only if the porter has no copy (FAILED) */ \
    X(READY, 5)   /* begin of a carrier: every piece that is out was HELD; `piece` and `size` are 0 */       \
    X(COPIED, 16) /* answer to OUT: unmap and release the piece */                                           \
    X(FILLED, 17) /* answer to IN: the memory has the piece's contents, the copy is freed */                 \
    X(FAILED, 18) /* answer to a frame of kind `failed`: nothing was changed */

/* Why a frame failed: X(NAME, number). */
#define CONVGPU_CARRIER_ERRORS(X)                                                                            \
    X(NO_ROOM, 1)   /* OUT: the host memory is full, or nobody has ordered the process to put out as much */ \
    X(NO_COPY, 2)   /* IN, HELD: the porter has no copy of this piece */                                     \
    X(BAD_PIECE, 3) /* OUT, IN: no descriptor, not one of this device's memory, or not of that size */       \
    X(DRIVER, 4)    /* OUT, IN: the driver failed to copy */

/* Kinds of control frames: X(NAME, number). Below 16: from the scheduler. */
#define CONVGPU_PORTER_KINDS(X)                                                                              \
    X(POOL, 1)       /* how much host memory to have */                                                      \
    X(SESSION, 2)    /* a process, with its carrier and its pidfd, in this order */                          \
    X(CHECKPOINT, 3) /* have the driver take what is left of a process off its devices, or put it back */    \
    X(ALLOW, 4)      /* how much a process may have in the pool from now on */                               \
    X(POOLED, 16)    /* the porter's host memory has changed */                                              \
    X(MOVED, 17)     /* a piece of a process was copied out (COPIED) or in (FILLED) */                       \
    X(GONE, 18)      /* a process has ended: its copies are freed */                                         \
    X(DROPPED, 19)   /* a process gave up a piece that was out (FORGET): its copy is freed */                \
    X(BROKEN, 20) /* a carrier was closed because of what came on it; copies stay until the process ends */  \
    X(CHECKPOINTED, 21) /* answer to CHECKPOINT; also of a new session that the driver has taken off */

#define CONVGPU_PIECE_FIELDS(X, A)                                                                           \
    X(uint32_t, kind)                                                                                        \
    X(uint32_t, device) /* row of the process's WELCOME */                                                   \
    X(uint64_t, piece)  /* chosen by the process, such as its address; one piece of a device has one name */ \
    X(uint64_t, size)                                                                                        \
    X(uint32_t, failed) /* FAILED: kind of the frame that failed */                                          \
    X(uint32_t, error)  /* FAILED: enum convgpu_carrier_error */

#define CONVGPU_POOL_FIELDS(X, A)                                                                            \
    X(uint32_t, kind)                                                                                        \
    X(uint32_t, reserved)                                                                                    \
    X(uint64_t, size) /* wanted; a pool shrinks as far as its free memory allows */

#define CONVGPU_SESSION_FIELDS(X, A)                                                                         \
    X(uint32_t, kind)                                                                                        \
    X(uint32_t, pid)                                                                                         \
    X(uint64_t, session)      /* the scheduler's number of the session */                                    \
    X(uint64_t, started)      /* clock ticks since boot; with `pid` it names the process in the pool */      \
    X(uint64_t, most)         /* bytes of copies that it may have; NO_ROOM beyond */                         \
    X(uint32_t, device_count) /* rows of `carrier_device` that follow, as in WELCOME */                      \
    X(uint32_t, reserved)

#define CONVGPU_ALLOW_FIELDS(X, A)                                                                           \
    X(uint32_t, kind)                                                                                        \
    X(uint32_t, reserved)                                                                                    \
    X(uint64_t, session)                                                                                     \
    X(uint64_t, most) /* as SESSION.most */

#define CONVGPU_CARRIER_DEVICE_FIELDS(X, A) A(uint8_t, uuid, 16)

#define CONVGPU_CHECKPOINT_FIELDS(X, A)                                                                      \
    X(uint32_t, kind)                                                                                        \
    X(uint32_t, restore) /* 0: take off; 1: put back */                                                      \
    X(uint64_t, session)

#define CONVGPU_CHECKPOINTED_FIELDS(X, A)                                                                    \
    X(uint32_t, kind)                                                                                        \
    X(uint32_t, restored) /* as CHECKPOINT.restore */                                                        \
    X(uint64_t, session)                                                                                     \
    X(uint32_t, error) /* the driver's; 0: done */                                                           \
    X(uint32_t, reserved)

#define CONVGPU_POOLED_FIELDS(X, A)                                                                          \
    X(uint32_t, kind)                                                                                        \
    X(uint32_t, error) /* errno or the driver's error that stopped the pool from growing; 0: none */         \
    X(uint64_t, size)  /* that pieces can be copied to */                                                    \
    X(uint64_t, used)  /* by copies */

#define CONVGPU_MOVED_FIELDS(X, A)                                                                           \
    X(uint32_t, kind)   /* MOVED or DROPPED */                                                               \
    X(uint32_t, device) /* row of the process's WELCOME */                                                   \
    X(uint64_t, session)                                                                                     \
    X(uint64_t, size)                                                                                        \
    X(uint32_t, in) /* 0: to the host; 1: to the device */                                                   \
    X(uint32_t, reserved)                                                                                    \
    X(uint64_t, nanoseconds) /* since the copy began, or since the one before it ended, whichever was later  \
                              */

#define CONVGPU_GONE_FIELDS(X, A)                                                                            \
    X(uint32_t, kind) /* GONE or BROKEN */                                                                   \
    X(uint32_t, reserved)                                                                                    \
    X(uint64_t, session)                                                                                     \
    X(uint64_t, size) /* GONE: of the copies that were freed */

/* Every struct: S(struct name, X-macro of its fields, size). */
#define CONVGPU_CARRIER_STRUCTS(S)                                                                           \
    S(piece, CONVGPU_PIECE_FIELDS, 32)                                                                       \
    S(pool, CONVGPU_POOL_FIELDS, 16)                                                                         \
    S(session, CONVGPU_SESSION_FIELDS, 40)                                                                   \
    S(allow, CONVGPU_ALLOW_FIELDS, 24)                                                                       \
    S(carrier_device, CONVGPU_CARRIER_DEVICE_FIELDS, 16)                                                     \
    S(pooled, CONVGPU_POOLED_FIELDS, 24)                                                                     \
    S(moved, CONVGPU_MOVED_FIELDS, 40)                                                                       \
    S(gone, CONVGPU_GONE_FIELDS, 24)                                                                         \
    S(checkpoint, CONVGPU_CHECKPOINT_FIELDS, 16)                                                             \
    S(checkpointed, CONVGPU_CHECKPOINTED_FIELDS, 24)

#define CONVGPU_CARRIER_FIELD(type, name)        type name;
#define CONVGPU_CARRIER_ARRAY(type, name, count) type name[count];
#define CONVGPU_CARRIER_STRUCT(name, FIELDS, bytes)                                                          \
    struct convgpu_##name {                                                                                  \
        FIELDS(CONVGPU_CARRIER_FIELD, CONVGPU_CARRIER_ARRAY)                                                 \
    };                                                                                                       \
    _Static_assert(sizeof(struct convgpu_##name) == (bytes), "size of " #name);
CONVGPU_CARRIER_STRUCTS(CONVGPU_CARRIER_STRUCT)

#define CONVGPU_CARRIER_KIND(name, number) CONVGPU_CARRIER_##name = (number),
enum convgpu_carrier_kind { CONVGPU_CARRIER_KINDS(CONVGPU_CARRIER_KIND) };
#define CONVGPU_CARRIER_ERROR(name, number) CONVGPU_CARRIER_ERROR_##name = (number),
enum convgpu_carrier_error { CONVGPU_CARRIER_ERRORS(CONVGPU_CARRIER_ERROR) };
#define CONVGPU_PORTER_KIND(name, number) CONVGPU_PORTER_##name = (number),
enum convgpu_porter_kind { CONVGPU_PORTER_KINDS(CONVGPU_PORTER_KIND) };

#endif
