/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* One write for each line, so that threads do not mix theirs. */
void log_line(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (wanted < 0) return;
    size_t length = (size_t)wanted < sizeof line - 1 ? (size_t)wanted : sizeof line - 2;
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, length) < 0) return; /* nobody reads it */
}
