/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BURST                                                                                                \
    20 /* lines of one place within a span; as in scheduler/convgpu/daemon/system/log_rate_limit.py */
#define SPAN   10 /* seconds */
#define PLACES 64 /* more than there are calls of log_line; what has no place is written */

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

/* One write for each line, so that threads do not mix theirs. */
void log_line(const char *format, ...) {
    char line[512], more[64] = "";
    unsigned before = 0;
    if (!passes(format, &before)) return;
    if (before > 0) snprintf(more, sizeof more, " (%u more like this one in the last seconds)", before);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line, sizeof line - sizeof more, format, arguments);
    va_end(arguments);
    if (wanted < 0) return;
    size_t most = sizeof line - sizeof more - 1, length = (size_t)wanted < most ? (size_t)wanted : most;
    length += (size_t)snprintf(line + length, sizeof line - length, "%s\n", more);
    if (write(STDERR_FILENO, line, length) < 0) return; /* nobody reads it */
}
