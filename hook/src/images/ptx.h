/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONVGPU_PTX_H
#define CONVGPU_PTX_H

#include <stdint.h>

/* Returns the bytes of all variables (.global) that a text of PTX declares and does not import; UINT64_MAX if
 * that does not fit. A text that is no PTX has none. */
uint64_t ptx_variables(const char *text);

#endif
