/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BURST                                                                                                \
    20 /* lines of one place within a span; as in scheduler/convgpu/daemon/system/log_rate_limit.py */
#define SPAN   10  /* seconds */
#define PLACES 64  /* more than there are calls of log_line; what has no place is written */
#define TEXT   448 /* bytes of a line */
#define NOTE   80  /* of each of the two remarks behind it */

struct place {
    const char *format; /* NULL: free */
    time_t since;
    unsigned passed, held_back;
};

static struct place places[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct place *find(const char *format) {
    for (unsigned i = 0; i < PLACES; i++) {
        if (places[i].format == NULL) places[i].format = format;
        if (places[i].format == format) return &places[i];
    }
    return NULL;
}

/* Whether this line is written; `before`: lines like it that were not. */
static bool passes(const char *format, unsigned *before) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&lock);
    struct place *place = find(format);
    if (place != NULL && (place->passed == 0 || now.tv_sec - place->since >= SPAN)) {
        *before = place->held_back;
        place->since = now.tv_sec;
        place->passed = place->held_back = 0;
    }
    bool written = place == NULL || place->passed < BURST;
    if (place != NULL) (*(written ? &place->passed : &place->held_back))++;
    pthread_mutex_unlock(&lock);
    return written;
}

/* Writes a line, of which `length` bytes are there, or drops and counts it if that would wait: stderr is the
 * scheduler's, and nobody may read it (a killed dockerd leaves the plugin's pipe unread). Nor may it be made
 * non-blocking, which it would be for the scheduler, too. poll() says that a pipe is writable when it takes
 * PIPE_BUF bytes, which no line has; without a reader it says POLLERR, and SIGPIPE would end us. Under
 * `writing`, or another thread's line takes that room in between; another process's could, in that instant.
 */
static void write_or_drop(char *line, size_t length, size_t size) {
    static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
    static unsigned lost;
    struct pollfd file = {.fd = STDERR_FILENO, .events = POLLOUT};
    char before[NOTE] = "";
    pthread_mutex_lock(&writing);
    if (lost > 0)
        snprintf(before, sizeof before, " (%u lines before this one are lost: nobody read the log)", lost);
    length += (size_t)snprintf(line + length, size - length, "%s\n", before);
    /* One write for each line, so that threads do not mix theirs. */
    bool written = poll(&file, 1, 0) == 1 && file.revents == POLLOUT &&
                   write(STDERR_FILENO, line, length) == (ssize_t)length;
    lost = written ? 0 : lost + 1;
    pthread_mutex_unlock(&writing);
}

void log_line(const char *format, ...) {
    char line[TEXT + 2 * NOTE], more[NOTE] = "";
    unsigned before = 0;
    if (!passes(format, &before)) return;
    if (before > 0) snprintf(more, sizeof more, " (%u more like this one in the last seconds)", before);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line, TEXT, format, arguments);
    va_end(arguments);
    if (wanted < 0) return;
    size_t length = wanted < TEXT ? (size_t)wanted : TEXT - 1;
    length += (size_t)snprintf(line + length, sizeof line - length, "%s", more);
    write_or_drop(line, length, sizeof line);
}
