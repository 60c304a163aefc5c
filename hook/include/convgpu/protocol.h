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

/* Kinds: X(NAME, number). Below 32: processes. From 32: administration (JSON bodies). */
#define CONVGPU_KINDS(X) \
    X(HELLO, 1)         \
    X(ALLOCATE, 2)      \
    X(FREED, 3)         \
    X(CONTEXT, 4)       \
    X(QUERY, 5)         \
    X(OBSERVE, 6)       \
    X(WELCOME, 16)      \
    X(ACCEPTED, 17)     \
    X(REJECTED, 18)     \
    X(CONTEXT_SIZE, 19) \
    X(USAGE, 20)        \
    X(FAILED, 21)       \
    X(OBSERVED, 22)     \
    X(ADMIN, 32)        \
    X(ADMIN_REPLY, 33)

/* Why an allocation was rejected: X(NAME, number). */
#define CONVGPU_REASONS(X)                                            \
    X(LIMIT, 1)    /* usage + size > limit */                         \
    X(DEADLINE, 2) /* the option `wait` ran out */                    \
    X(DEVICE, 3)   /* the container has no limit on that device */    \
    X(DRIVER, 4)   /* the driver refused what was accepted, and external memory is not why */

/* Why a connection was refused (FAILED), after which it is closed: X(NAME, number). */
#define CONVGPU_FAILURES(X)                                                     \
    X(VERSION, 1)   /* another protocol version */                              \
    X(MALFORMED, 2) /* a frame that is not of this protocol */                  \
    X(NO_LIMIT, 3)  /* neither the volume nor CONVGPU_MEMORY names a limit */   \
    X(ORDER, 4)     /* a message that is not allowed here, HELLO missing */

/* Fields of each fixed body: X(type, name). Arrays: A(type, name, count). */
#define CONVGPU_HEADER_FIELDS(X, A)                                             \
    X(uint32_t, size)    /* of the whole frame, this header included */         \
    X(uint16_t, version) /* CONVGPU_PROTOCOL_VERSION */                         \
    X(uint16_t, kind)                                                           \
    X(uint64_t, id) /* chosen by the asker, repeated by the answer; 0: no answer wanted */

#define CONVGPU_HELLO_FIELDS(X, A)                                              \
    X(uint32_t, pid)        /* as the process sees itself; SO_PEERCRED is what counts */ \
    X(uint32_t, held_count) /* rows of `held` that follow; 0 on a first connection */    \
    A(char, program, CONVGPU_PROGRAM_SIZE)                                      \
    A(char, memory, CONVGPU_MEMORY_SIZE)

#define CONVGPU_HELD_FIELDS(X, A)                                               \
    A(uint8_t, device, CONVGPU_UUID_SIZE)                                       \
    X(uint64_t, size) /* used by this process when it reconnects */

#define CONVGPU_ALLOCATE_FIELDS(X, A)                                           \
    X(uint32_t, device)  /* row of WELCOME */                                   \
    X(uint32_t, refused) /* 1: accepted before, refused by the driver, and given back */ \
    X(uint64_t, size)                                                           \
    A(char, call, CONVGPU_PROGRAM_SIZE) /* name of the CUDA call, for people */

#define CONVGPU_FREED_FIELDS(X, A) \
    X(uint32_t, device)            \
    X(uint32_t, reserved)

#define CONVGPU_CONTEXT_FIELDS(X, A) \
    X(uint32_t, device)              \
    X(uint32_t, reserved)            \
    X(uint64_t, charged) /* bytes taken for all contexts of this process on the device, the new one included */ \
    X(uint64_t, used)    /* bytes taken for everything else of this process on the device */

#define CONVGPU_QUERY_FIELDS(X, A) \
    X(uint32_t, device)            \
    X(uint32_t, reserved)

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
    X(uint32_t, reserved)

#define CONVGPU_PROCESS_FIELDS(X, A)                                            \
    X(uint32_t, pid)      /* in the asker's pid namespace */                    \
    X(uint32_t, host_pid) /* as the scheduler sees it, and the driver; 0: not known */ \
    X(uint64_t, used)

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

#endif
