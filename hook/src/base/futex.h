/* SPDX-License-Identifier: Apache-2.0
 *
 * A futex of this process. Neither call is a cancellation point, and signal handlers run in a wait as in any
 * system call. errno is kept.
 */
#ifndef CONVGPU_FUTEX_H
#define CONVGPU_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
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

/* Wakes all who wait. */
static inline void futex_wake(_Atomic uint32_t *word) {
    int saved_errno = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    errno = saved_errno;
}

#endif
