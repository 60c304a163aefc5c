/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/no_cancel.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "convgpu: ";
static bool debugging;
static struct stat first; /* what stderr was */
static bool has_first;

/* fstat() is a symbol of glibc 2.33; its structure is the kernel's. */
static bool stat_stderr(struct stat *status) {
    return syscall(SYS_fstat, STDERR_FILENO, status) == 0;
}

void log_open(void) {
    int saved_errno = errno;
    has_first = stat_stderr(&first);
    errno = saved_errno;
    const char *value = getenv("CONVGPU_DEBUG");
    debugging = value && strcmp(value, "1") == 0;
}

/* A closed pipe is no reason to end the program, which may never write there itself: the signal is taken
 * back, if it was not pending before. */
static void write_quietly(const char *line, size_t length) {
    sigset_t pipe, before, pending;
    int cancellation = no_cancel_begin();
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, line, length);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
            while (sigtimedwait(&pipe, NULL, &(struct timespec){0}) < 0 && errno == EINTR) continue;
        if (written <= 0) break; /* nobody to tell */
        line += written;
        length -= (size_t)written;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    no_cancel_end(cancellation);
}

/* vsnprintf into an array does not allocate for the conversions used here (%s %d %u %llu %x). */
static void write_line(const char *format, va_list arguments) {
    char line[sizeof prefix + 402];
    int saved_errno = errno;
    memcpy(line, prefix, sizeof prefix - 1);
    size_t room = sizeof line - sizeof prefix;
    int wanted = vsnprintf(line + sizeof prefix - 1, room, format, arguments);
    size_t length = sizeof prefix - 1 + (wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room - 1);
    line[length++] = '\n';
    write_quietly(line, length);
    errno = saved_errno;
}

bool log_is_debugging(void) {
    return debugging;
}

void log_refusal(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

void log_debug(const char *format, ...) {
    if (!debugging) return;
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

/* poll() says that a pipe is writable when it takes PIPE_BUF bytes, which no line has; and of a closed file
 * that it is ready, for a write fails at once. */
bool log_would_block(int milliseconds) {
    struct pollfd file = {.fd = STDERR_FILENO, .events = POLLOUT};
    int saved_errno = errno, cancellation = no_cancel_begin();
    bool full = poll(&file, 1, milliseconds) == 0;
    no_cancel_end(cancellation);
    errno = saved_errno;
    return full;
}

static bool can_take_a_notice(void) {
    struct stat now;
    struct pollfd file = {.fd = STDERR_FILENO, .events = POLLOUT};
    return has_first && stat_stderr(&now) && now.st_dev == first.st_dev && now.st_ino == first.st_ino &&
           poll(&file, 1, 0) == 1 && (file.revents & POLLOUT);
}

void log_notice(const char *format, ...) {
    va_list arguments;
    int saved_errno = errno, cancellation = no_cancel_begin();
    va_start(arguments, format);
    if (can_take_a_notice()) write_line(format, arguments);
    va_end(arguments);
    no_cancel_end(cancellation);
    errno = saved_errno;
}
