/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on stderr, each by one write(2): no stdio buffer, no allocation, no lock. errno is kept.
 */
#ifndef CONVGPU_LOG_H
#define CONVGPU_LOG_H

#include <stdbool.h>

/* Reads CONVGPU_DEBUG, and sees what stderr is; called once, by the first CUDA call. */
void log_open(void);

/* Says why something was refused. `format` without "convgpu: " and newline; longer than 400 bytes is cut. */
void log_refusal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether a line would have to wait for so long, and longer, for somebody to read what stderr is full of. A
 * handler of the program's ends the wait. */
bool log_would_block(int milliseconds);

/* Says something that is no refusal, where that costs nothing: not when stderr is another file than at
 * log_open(), for a program may have put a file of its own in the place of a closed one, and not when it
 * would block. */
void log_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether CONVGPU_DEBUG=1: then a line of log_debug() is worth preparing. */
bool log_is_debugging(void);

/* The same, only with CONVGPU_DEBUG=1. */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
