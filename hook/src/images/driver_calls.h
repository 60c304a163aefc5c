/* SPDX-License-Identifier: Apache-2.0
 *
 * What the driver gives to kernels, and code calls by name: the same in PTX and in the symbols of a cubin
 * (nvcc 13, driver 580). `new` of C++ is malloc.
 */
#ifndef CONVGPU_DRIVER_CALLS_H
#define CONVGPU_DRIVER_CALLS_H

#include <stdbool.h>
#include <stddef.h>

enum { CALLS_PRINT = 1, CALLS_ASSERT = 2, CALLS_HEAP = 4, CALLS_LAUNCH = 8 }; /* bits */

/* No name is longer, with what stands before and behind it. */
enum { DRIVER_CALLS_LONGEST = 24 };

/* Which of them the text has. A name must be whole: between characters that no name in PTX has, so of one
 * that begins or ends the text nothing is known. In a table a NUL ends it; it may be the end of a longer one,
 * as both can have the same bytes there. */
unsigned driver_calls_in(const char *text, size_t size, bool is_table);

#endif
