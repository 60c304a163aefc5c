/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the test program: each runs the commands of a family of calls, and returns -1 for one that it
 * does not know. `values` takes what the call wrote.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "tables/driver.h"

enum { NUMBERS = 6 };

extern struct driver cuda;
extern CUcontext shared_context; /* made last */

/* A call of the driver that is not hooked. */
void *driver_symbol(const char *symbol);

CUresult run_context(const char *command, const size_t *number, char *values);
CUresult run_pool(const char *command, const size_t *number, char *values);
CUresult run_virtual(const char *command, const size_t *number, char *values);
CUresult run_array_or_first_form(const char *command, const size_t *number, char *values);
CUresult run_graph(const char *command, const size_t *number, char *values);
CUresult run_pointer(const char *command, const size_t *number, char *values);
CUresult run_copy(const char *command, const size_t *number, char *values);
CUresult run_work(const char *command, const size_t *number, char *values);
CUresult run_module(const char *command, const size_t *number, char *values);
CUresult run_launch(const char *command, const size_t *number, char *values);
CUresult run_threads(const char *command, const size_t *number, char *values);

/* `rest` is the text behind the command. */
CUresult run_ipc(const char *command, const char *rest, char *values);
CUresult run_zero(const char *command, const char *rest, char *values);

#endif
