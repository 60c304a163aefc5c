/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on stderr, which the scheduler puts into its log.
 */
#ifndef PORTER_LOG_H
#define PORTER_LOG_H

__attribute__((format(printf, 1, 2))) void log_line(const char *format, ...);

#endif
