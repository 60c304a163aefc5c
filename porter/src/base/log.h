/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on stderr, which are lines of the scheduler's log. Of one place no more are written than the
 * scheduler would write: containers provoke some of them.
 */
#ifndef PORTER_LOG_H
#define PORTER_LOG_H

/* `format`: a literal of its own for each kind of line. */
__attribute__((format(printf, 1, 2))) void log_line(const char *format, ...);

#endif
