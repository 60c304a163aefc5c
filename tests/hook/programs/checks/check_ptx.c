/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit test of hook/src/images/ptx.c. Says what failed, and exits 1.
 */
#include "images/ptx.h"

#include <stdio.h>

static const struct {
    const char *text;
    uint64_t size;
} cases[] = {
    {"", 0},
    {"no PTX", 0},
    {".global", 0},
    {".global .b8 x[", 0},
    {".version 7.0\n.visible .global .align 16 .b8 big[6442450944];", UINT64_C(6442450944)},
    {"\n.global .f64 x;\n.global .v4 .u32 y[10];", 168},
    {".weak .global .align 4 .b8 x[12] = {1, 2, 3, 4}, .global .b8 y[5];", 17},
    {".global .u32 a[4][8], b, c[2];", 140},
    {".global .attribute(.managed) .align 8 .b64 m[3];", 24},
    {".extern .global .align 4 .b8 shared[100];", 0},
    {".extern\t.global .u32 one;\n.global .u32 own;", 4},
    {"ld.global.u32 %r1, [%rd1];\n{cvta.to.global .u64 %rd1, %rd2;}", 0},
    {".entry k(.param .u64 .ptr .global .align 4 k_param_0)\n{ st.global .u32 [%rd1], %r1; }", 0},
    {".const .b8 table[64];", 0},
    {".global .b8 x[18446744073709551615];.global .b64 y[18446744073709551615];", UINT64_MAX},
};

int main(void) {
    int wrong = 0;
    for (unsigned index = 0; index < sizeof cases / sizeof *cases; index++) {
        uint64_t size = ptx_variables(cases[index].text);
        if (size == cases[index].size) continue;
        printf("%s: %llu\n", cases[index].text, (unsigned long long)size);
        wrong = 1;
    }
    return wrong;
}
