/* SPDX-License-Identifier: Apache-2.0
 *
 * zero SYMBOL: any hooked call with NULL and 0 for all of its arguments, which come in registers and on the
 * stack alike whatever their types.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

CUresult run_zero(const char *command, const char *rest, char *values) {
    typedef CUresult call(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    char symbol[64] = "";
    values[0] = '\0';
    if (strcmp(command, "zero") != 0 || sscanf(rest, "%63s", symbol) != 1) return -1;
    call *function = NULL;
#define CHOOSE(name, base, since, stream, gate, parameters, arguments)                                       \
    if (strcmp(symbol, #name) == 0) function = (call *)(void *)cuda.name;
    CONVGPU_HOOKED_CALLS(CHOOSE)
    return function ? function(0, 0, 0, 0, 0, 0, 0, 0) : -1;
}
