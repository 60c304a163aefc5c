/* SPDX-License-Identifier: Apache-2.0
 *
 * THE wire declaration: what a process (the hook) and the scheduler say to each other on the UNIX stream
 * socket `scheduler.sock` of a container, and what the plugin says on the scheduler's own `admin.sock`.
 * The Python half is scheduler/convgpu/protocol/wire.py; tests/contract compares the two through a compiled
 * probe, so a change here without one there fails `make test`. Meaning of each message: docs/protocol.md.
 *
 * Numbers are in host byte order (both ends are on one machine). Sizes are bytes. Every struct is laid out
 * without padding: fields are ordered and sized so that natural alignment leaves no hole, and asserted below.
 */
#ifndef CONVGPU_PROTOCOL_H
#define CONVGPU_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#define CONVGPU_PROTOCOL_VERSION 2u
#define CONVGPU_MAX_FRAME 65536u /* bytes, header included; a longer frame ends the connection */
#define CONVGPU_UUID_SIZE 16u
#define CONVGPU_PROGRAM_SIZE 32u /* comm name, NUL-padded */
#define CONVGPU_MEMORY_SIZE 64u  /* the limit that the environment asks for, NUL-padded; empty when none */
#define CONVGPU_TEXT_SIZE 240u   /* text of an error, NUL-padded UTF-8 */

/* Kinds: X(NAME, number). Below 32, and from 34: processes. 32 and 33: administration (JSON bodies). */
#define CONVGPU_KINDS(X) \
    X(HELLO, 1)         \
    X(ALLOCATE, 2)      \
    X(FREED, 3)         \
    X(CONTEXT, 4)       \
    X(QUERY, 5)         \
    X(OBSERVE, 6)       \
    X(ABLE, 7)          \
    X(RUN, 8)           \
    X(STOPPED, 9)       \
    X(EVICTED, 10)      \
    X(RESTORED, 11)     \
    X(STATE, 12)        \
    X(IDLE, 13)         \
    X(LISTED, 14)       \
    X(TRACED, 15)       \
    X(WELCOME, 16)      \
    X(ACCEPTED, 17)     \
    X(REJECTED, 18)     \
    X(CONTEXT_SIZE, 19) \
    X(USAGE, 20)        \
    X(FAILED, 21)       \
    X(OBSERVED, 22)     \
    X(CARRIER, 23)      \
    X(STOP, 24)         \
    X(STEP, 25)         \
    X(EVICT, 26)        \
    X(RESTORE, 27)      \
    X(GO, 28)           \
    X(WATCH, 29)        \
    X(LIST, 30)         \
    X(ADMIN, 32)        \
    X(ADMIN_REPLY, 33)  \
    X(WITHDRAW, 34)     \
    X(EXPLAINED, 35)    \
    X(EXPORTED, 36)

/* Why an allocation was rejected: X(NAME, number). */
#define CONVGPU_REASONS(X)                                            \
    X(LIMIT, 1)    /* usage + size > limit */                         \
    X(DEADLINE, 2) /* the option `wait` ran out */                    \
    X(DEVICE, 3)   /* the container has no limit on that device */    \
    X(DRIVER, 4)   /* the driver refused what was accepted, and external memory is not why */ \
    X(DISPLACED, 5) /* the device that was chosen for the container is lost or drained */ \
    X(INTERRUPTED, 6) /* it was paused, and withdrawn */

/* Why a connection was refused (FAILED), after which it is closed: X(NAME, number). */
#define CONVGPU_FAILURES(X)                                                     \
    X(VERSION, 1)   /* another protocol version */                              \
    X(MALFORMED, 2) /* a frame that is not of this protocol */                  \
    X(NO_LIMIT, 3)  /* neither the volume nor CONVGPU_MEMORY names a limit */   \
    X(ORDER, 4)     /* a message that is not allowed here, HELLO missing */     \
    X(PEER, 5)      /* the process runs in another container */

/* Who moves the memory of a process (ABLE): X(NAME, number). */
#define CONVGPU_MOVERS(X)                                                \
    X(UNIFIED, 1) /* the driver, by prefetches of managed memory */      \
    X(VMM, 2)     /* the porter, piece by piece */

/* What came of STOP (STOPPED): X(NAME, number). */
#define CONVGPU_OUTCOMES(X)                                                               \
    X(DRAINED, 0)   /* the gate is closed, no work of this process is on any device */    \
    X(BUSY, 1)      /* its work did not end before the deadline; the gate is open again */ \
    X(CAPTURING, 2) /* as BUSY, because a stream was being captured */

/* Bits of ALLOCATE.flags. */
#define CONVGPU_ALLOCATE_REFUSED 1u /* accepted before, refused by the driver, and given back */
#define CONVGPU_ALLOCATE_FIXED 2u   /* for memory that cannot be moved: it comes out of the slot's `fixed` */

/* In place of an epoll instance in EXPORTED: the driver is about to make the descriptor. */
#define CONVGPU_EXPORT_EXPECTED 0xffffffffu
/* Likewise, with size 0: that was all that the process told an earlier scheduler of. */
#define CONVGPU_EXPORT_ALL 0xfffffffeu

/* Bits of ABLE.flags. */
#define CONVGPU_ABLE_MEMBARRIER 1u /* the gate closes by membarrier */
#define CONVGPU_ABLE_CAPTURES 2u   /* captures of streams are counted */
#define CONVGPU_ABLE_IDLE 4u       /* the process answers WATCH */

/* Bits of OBSERVED.flags. */
#define CONVGPU_OBSERVED_CHOSEN 1u /* not all GPUs are the container's: one with limit 0 is not to be seen */

/* Fields of each fixed body: X(type, name). Arrays: A(type, name, count). */
#define CONVGPU_HEADER_FIELDS(X, A)                                             \
    X(uint32_t, size)    /* of the whole frame, this header included */         \
    X(uint16_t, version) /* CONVGPU_PROTOCOL_VERSION */                         \
    X(uint16_t, kind)                                                           \
    X(uint64_t, id) /* chosen by the asker, repeated by the answer; 0: no answer wanted */

#define CONVGPU_HELLO_FIELDS(X, A)                                              \
    X(uint32_t, pid)        /* as the process sees itself; SO_PEERCRED is what counts */ \
    X(uint32_t, held_count) /* rows of `held` that follow */                    \
    A(char, program, CONVGPU_PROGRAM_SIZE)                                      \
    A(char, memory, CONVGPU_MEMORY_SIZE)

#define CONVGPU_HELD_FIELDS(X, A)                                               \
    A(uint8_t, device, CONVGPU_UUID_SIZE)                                       \
    X(uint64_t, size) /* used by this process; 0 on a first connection, which names all GPUs that it sees */

#define CONVGPU_ALLOCATE_FIELDS(X, A)                                           \
    X(uint32_t, device)  /* row of WELCOME */                                   \
    X(uint32_t, flags)   /* CONVGPU_ALLOCATE_* */                               \
    X(uint64_t, size)                                                           \
    A(char, call, CONVGPU_PROGRAM_SIZE) /* name of the CUDA call, for people */

#define CONVGPU_FREED_FIELDS(X, A) \
    X(uint32_t, device)            \
    X(uint32_t, reserved)

/* The header's id is that of the ALLOCATE. */
#define CONVGPU_WITHDRAW_FIELDS(X, A) X(uint64_t, reserved)

#define CONVGPU_CONTEXT_FIELDS(X, A) \
    X(uint32_t, device)              \
    X(uint32_t, reserved)            \
    X(uint64_t, charged) /* bytes taken for all contexts of this process on the device, the new one included */ \
    X(uint64_t, used)    /* bytes taken for everything else of this process on the device */

#define CONVGPU_QUERY_FIELDS(X, A) \
    X(uint32_t, device)            \
    X(uint32_t, reserved)

#define CONVGPU_EXPORTED_FIELDS(X, A)                                           \
    X(uint64_t, name)       /* of what is kept: the process's choice */         \
    X(uint64_t, size)       /* bytes that may stay after the process; 0: nobody has it any more */ \
    X(uint32_t, device)     /* row of WELCOME */                                \
    X(uint32_t, instance)   /* the process's descriptor of an epoll instance that knows the file; or EXPECTED */ \
    X(uint32_t, number)     /* by which number the instance knows it */         \
    X(uint32_t, generation) /* another one: the instance is another, though its descriptor may be the same */

#define CONVGPU_WELCOME_FIELDS(X, A)                                            \
    X(uint32_t, device_count) /* rows of `device` that follow */                \
    X(uint32_t, page_size)    /* bytes of the page whose descriptor comes along (SCM_RIGHTS) */

#define CONVGPU_DEVICE_FIELDS(X, A)                                             \
    A(uint8_t, uuid, CONVGPU_UUID_SIZE)                                         \
    X(uint64_t, limit)        /* of the container on this device */             \
    X(uint64_t, context_size) /* what to charge for a new context until CONTEXT_SIZE says better */

#define CONVGPU_ACCEPTED_FIELDS(X, A)                                           \
    X(uint64_t, size)     /* is the asker's now; not added to the headroom */   \
    X(uint64_t, settling) /* bytes of the device that ended processes held and the driver may not have freed yet */

#define CONVGPU_REJECTED_FIELDS(X, A) \
    X(uint32_t, reason)               \
    X(uint32_t, reserved)             \
    X(uint64_t, limit)                \
    X(uint64_t, used)

#define CONVGPU_CONTEXT_SIZE_FIELDS(X, A)                                       \
    X(uint64_t, size) /* what the contexts of this process take on the device by the driver's own count */

#define CONVGPU_USAGE_FIELDS(X, A)                                              \
    X(uint64_t, limit)                                                          \
    X(uint64_t, used)     /* by all processes of the container */               \
    X(uint64_t, settling) /* as in ACCEPTED */

#define CONVGPU_OBSERVE_FIELDS(X, A)                                            \
    A(uint8_t, device, CONVGPU_UUID_SIZE)                                       \
    A(char, memory, CONVGPU_MEMORY_SIZE) /* as in HELLO */

#define CONVGPU_OBSERVED_FIELDS(X, A)                                           \
    X(uint64_t, limit)         /* 0: the container has none on that device */   \
    X(uint64_t, used)                                                           \
    X(uint32_t, process_count) /* rows of `process` that follow */              \
    X(uint32_t, flags)         /* CONVGPU_OBSERVED_* */

#define CONVGPU_PROCESS_FIELDS(X, A)                                            \
    X(uint32_t, pid)      /* in the asker's pid namespace */                    \
    X(uint32_t, host_pid) /* as the scheduler sees it, and the driver; 0: not known */ \
    X(uint64_t, used)

#define CONVGPU_ABLE_FIELDS(X, A)                                               \
    X(uint32_t, mover) /* enum convgpu_mover */                                 \
    X(uint32_t, flags) /* CONVGPU_ABLE_* */

#define CONVGPU_RUN_FIELDS(X, A) X(uint64_t, epoch)

#define CONVGPU_STOPPED_FIELDS(X, A)                                            \
    X(uint64_t, epoch)                                                          \
    X(uint32_t, outcome)     /* enum convgpu_outcome */                         \
    X(uint32_t, waiting)     /* threads at the gate */                          \
    X(uint64_t, nanoseconds) /* from STOP until the outcome was known */

#define CONVGPU_EVICTED_FIELDS(X, A)                                            \
    X(uint64_t, epoch)                                                          \
    X(uint32_t, device) /* row of WELCOME */                                    \
    X(uint32_t, ended)  /* 1: no more of this EVICT follows */                  \
    X(uint64_t, size)   /* that left the device since the last EVICTED for this epoch */

#define CONVGPU_RESTORED_FIELDS(X, A)                                           \
    X(uint64_t, epoch)                                                          \
    X(uint32_t, device)                                                         \
    X(uint32_t, refused) /* the driver's error that ended this RESTORE; 0: none */ \
    X(uint64_t, size)    /* that came back since the last RESTORED for this epoch */

#define CONVGPU_STATE_FIELDS(X, A)                                              \
    X(uint64_t, epoch) /* of the last STOP or GO; 0: none */                    \
    X(uint32_t, open)  /* 1: the gate is open */                                \
    X(uint32_t, row_count) /* rows of `state_row` that follow */

#define CONVGPU_STATE_ROW_FIELDS(X, A)                                          \
    A(uint8_t, device, CONVGPU_UUID_SIZE)                                       \
    X(uint64_t, movable) /* on the device, and can leave */                     \
    X(uint64_t, fixed)   /* on the device, and cannot */                        \
    X(uint64_t, out)     /* on the host */

#define CONVGPU_CARRIER_FIELDS(X, A)                                            \
    X(uint32_t, version) /* CONVGPU_CARRIER_VERSION of the porter (carrier.h) */ \
    X(uint32_t, reserved)

#define CONVGPU_STOP_FIELDS(X, A)                                               \
    X(uint64_t, epoch)                                                          \
    X(uint32_t, deadline) /* milliseconds in which to drain */                  \
    X(uint32_t, reserved)

#define CONVGPU_STEP_FIELDS(X, A)                                               \
    X(uint64_t, epoch)                                                          \
    X(uint32_t, count) /* submissions that may pass the closed gate */          \
    X(uint32_t, reserved)

#define CONVGPU_EVICT_FIELDS(X, A)                                              \
    X(uint64_t, epoch)                                                          \
    X(uint32_t, device)                                                         \
    X(uint32_t, reserved)                                                       \
    X(uint64_t, size) /* at least as much has to leave, if there is as much */

#define CONVGPU_RESTORE_FIELDS(X, A)                                            \
    X(uint64_t, epoch)                                                          \
    X(uint32_t, device)                                                         \
    X(uint32_t, reserved)                                                       \
    X(uint64_t, size) /* room that is reserved for what comes back */

#define CONVGPU_GO_FIELDS(X, A) X(uint64_t, epoch)

#define CONVGPU_IDLE_FIELDS(X, A)                                               \
    X(uint32_t, idle) /* 1: nothing of the process runs, and nothing was submitted for a while; 0: it works */ \
    X(uint32_t, reserved)                                                       \
    X(uint64_t, nanoseconds) /* since it worked last */

#define CONVGPU_WATCH_FIELDS(X, A)                                              \
    X(uint32_t, on) /* 1: tell by IDLE when the process becomes idle, and when it works again; 0: do not */ \
    X(uint32_t, reserved)

#define CONVGPU_LISTED_FIELDS(X, A)                                             \
    X(uint32_t, row_count) /* rows of `listed_row` that follow */               \
    X(uint32_t, more)      /* 1: another LISTED with this id follows */         \
    X(uint64_t, count)     /* of all live allocations, those included that LIST had no room for */ \
    X(uint64_t, size)      /* bytes charged for them */

#define CONVGPU_LISTED_ROW_FIELDS(X, A)                                         \
    X(uint64_t, address) /* or the driver's handle */                           \
    X(uint64_t, size)    /* bytes as they are charged; of a small allocation, what it takes of its pages */ \
    X(uint32_t, device)  /* row of WELCOME; UINT32_MAX: the container has no limit there any more */ \
    X(uint32_t, age)     /* seconds; UINT32_MAX: not known */                   \
    A(char, call, CONVGPU_PROGRAM_SIZE)

#define CONVGPU_TRACED_FIELDS(X, A)                                             \
    X(uint32_t, device) /* row of WELCOME */                                    \
    X(uint32_t, reserved)                                                       \
    X(uint64_t, size)   /* that the program asked for */                        \
    A(char, call, CONVGPU_PROGRAM_SIZE)

#define CONVGPU_LIST_FIELDS(X, A)                                               \
    X(uint32_t, most) /* rows that are wanted */                                \
    X(uint32_t, reserved)

/* The header's id is that of the ALLOCATE. */
#define CONVGPU_EXPLAINED_FIELDS(X, A) A(char, text, CONVGPU_TEXT_SIZE) /* one line for the user */

#define CONVGPU_FAILED_FIELDS(X, A) \
    X(uint32_t, failure)            \
    X(uint32_t, reserved)           \
    A(char, text, CONVGPU_TEXT_SIZE) /* one line for the user */

/* Every struct: S(struct name, X-macro of its fields, size). */
#define CONVGPU_STRUCTS(S)                                          \
    S(header, CONVGPU_HEADER_FIELDS, 16)                            \
    S(hello, CONVGPU_HELLO_FIELDS, 104)                             \
    S(held, CONVGPU_HELD_FIELDS, 24)                                \
    S(allocate, CONVGPU_ALLOCATE_FIELDS, 48)                        \
    S(freed, CONVGPU_FREED_FIELDS, 8)                               \
    S(withdraw, CONVGPU_WITHDRAW_FIELDS, 8)                         \
    S(context, CONVGPU_CONTEXT_FIELDS, 24)                          \
    S(query, CONVGPU_QUERY_FIELDS, 8)                               \
    S(welcome, CONVGPU_WELCOME_FIELDS, 8)                           \
    S(device, CONVGPU_DEVICE_FIELDS, 32)                            \
    S(accepted, CONVGPU_ACCEPTED_FIELDS, 16)                        \
    S(rejected, CONVGPU_REJECTED_FIELDS, 24)                        \
    S(context_size, CONVGPU_CONTEXT_SIZE_FIELDS, 8)                 \
    S(usage, CONVGPU_USAGE_FIELDS, 24)                              \
    S(observe, CONVGPU_OBSERVE_FIELDS, 80)                          \
    S(observed, CONVGPU_OBSERVED_FIELDS, 24)                        \
    S(process, CONVGPU_PROCESS_FIELDS, 16)                          \
    S(able, CONVGPU_ABLE_FIELDS, 8)                                 \
    S(run, CONVGPU_RUN_FIELDS, 8)                                   \
    S(stopped, CONVGPU_STOPPED_FIELDS, 24)                          \
    S(evicted, CONVGPU_EVICTED_FIELDS, 24)                          \
    S(restored, CONVGPU_RESTORED_FIELDS, 24)                        \
    S(state, CONVGPU_STATE_FIELDS, 16)                              \
    S(state_row, CONVGPU_STATE_ROW_FIELDS, 40)                      \
    S(carrier, CONVGPU_CARRIER_FIELDS, 8)                           \
    S(stop, CONVGPU_STOP_FIELDS, 16)                                \
    S(step, CONVGPU_STEP_FIELDS, 16)                                \
    S(evict, CONVGPU_EVICT_FIELDS, 24)                              \
    S(restore, CONVGPU_RESTORE_FIELDS, 24)                          \
    S(go, CONVGPU_GO_FIELDS, 8)                                     \
    S(idle, CONVGPU_IDLE_FIELDS, 16)                                \
    S(watch, CONVGPU_WATCH_FIELDS, 8)                               \
    S(listed, CONVGPU_LISTED_FIELDS, 24)                            \
    S(listed_row, CONVGPU_LISTED_ROW_FIELDS, 56)                    \
    S(traced, CONVGPU_TRACED_FIELDS, 48)                            \
    S(list, CONVGPU_LIST_FIELDS, 8)                                 \
    S(explained, CONVGPU_EXPLAINED_FIELDS, 240)                     \
    S(exported, CONVGPU_EXPORTED_FIELDS, 32)                        \
    S(failed, CONVGPU_FAILED_FIELDS, 248)

#define CONVGPU_DECLARE_FIELD(type, name) type name;
#define CONVGPU_DECLARE_ARRAY(type, name, count) type name[count];
#define CONVGPU_DECLARE_STRUCT(name, FIELDS, bytes)                           \
    struct convgpu_##name {                                                   \
        FIELDS(CONVGPU_DECLARE_FIELD, CONVGPU_DECLARE_ARRAY)                  \
    };                                                                        \
    _Static_assert(sizeof(struct convgpu_##name) == (bytes), "size of " #name);
CONVGPU_STRUCTS(CONVGPU_DECLARE_STRUCT)

#define CONVGPU_DECLARE_KIND(name, number) CONVGPU_##name = (number),
enum convgpu_kind { CONVGPU_KINDS(CONVGPU_DECLARE_KIND) };
#define CONVGPU_DECLARE_REASON(name, number) CONVGPU_REASON_##name = (number),
enum convgpu_reason { CONVGPU_REASONS(CONVGPU_DECLARE_REASON) };
#define CONVGPU_DECLARE_FAILURE(name, number) CONVGPU_FAILURE_##name = (number),
enum convgpu_failure { CONVGPU_FAILURES(CONVGPU_DECLARE_FAILURE) };
#define CONVGPU_DECLARE_MOVER(name, number) CONVGPU_MOVER_##name = (number),
enum convgpu_mover { CONVGPU_MOVERS(CONVGPU_DECLARE_MOVER) };
#define CONVGPU_DECLARE_OUTCOME(name, number) CONVGPU_OUTCOME_##name = (number),
enum convgpu_outcome { CONVGPU_OUTCOMES(CONVGPU_DECLARE_OUTCOME) };

#endif
