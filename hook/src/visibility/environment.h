/* SPDX-License-Identifier: Apache-2.0
 *
 * A variable of the environment that stands there for the length of one call of the driver.
 */
#ifndef CONVGPU_ENVIRONMENT_H
#define CONVGPU_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* Puts `entry` ("NAME=value", memory that stays valid for ever) in the place of the variable, or adds it. One
 * at a time; the caller serialises. False: no memory. */
bool environment_enter(char *entry, size_t name_length);

/* Takes it back: what stood there before stands there again. */
void environment_leave(void);

#endif
