/* SPDX-License-Identifier: Apache-2.0
 *
 * A futex of this process. No call here is a cancellation point, and signal handlers run in a wait as in any
 * system call. errno is kept.
 */
#ifndef CONVGPU_FUTEX_H
#define CONVGPU_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FUTEX_FOR_EVER = -1 };

/* Waits while the word is `value`, at most `milliseconds`; may return earlier. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t value, int milliseconds) {
    struct timespec bound = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L};
    int saved_errno = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, milliseconds < 0 ? NULL : &bound, NULL, 0);
    errno = saved_errno;
}

/* Waits while the word is `value`, until this time of CLOCK_MONOTONIC (NULL: for ever); may return earlier,
 * then true. A handler ends every timed wait with EINTR, also with SA_RESTART: who goes on with a time and
 * not with a duration does not begin anew with each signal. */
static inline bool futex_wait_until(_Atomic uint32_t *word, uint32_t value, const struct timespec *end) {
    int saved_errno = errno;
    bool late =
        syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, end, NULL, FUTEX_BITSET_MATCH_ANY) < 0 &&
        errno == ETIMEDOUT;
    errno = saved_errno;
    return !late;
}

/* Wakes all who wait. */
static inline void futex_wake(_Atomic uint32_t *word) {
    int saved_errno = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    errno = saved_errno;
}

#endif
