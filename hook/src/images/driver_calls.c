/* SPDX-License-Identifier: Apache-2.0 */
#include "images/driver_calls.h"

#include <string.h>

static const struct {
    const char *text;
    unsigned calls;
    bool begins; /* more may follow, and stand before it: cudadevrt calls several */
} names[] = {
    {"vprintf", CALLS_PRINT, false},
    {"__assertfail", CALLS_ASSERT, false},
    {"malloc", CALLS_HEAP, false},
    {"free", CALLS_HEAP, false},
    {"__cuda_syscall_cnp", CALLS_LAUNCH, true},
};
enum { NAMES = sizeof names / sizeof names[0] };

/* Whether that character is of no name in PTX. */
static bool parts(char at) {
    bool letter = (at >= 'a' && at <= 'z') || (at >= 'A' && at <= 'Z') || (at >= '0' && at <= '9');
    return !letter && at != '_' && at != '$' && at != '%';
}

static bool has(const char *text, size_t size, const char *name, bool begins, bool is_table) {
    size_t length = strlen(name);
    const char *end = text + size, *found = text;
    for (; (found = memmem(found, (size_t)(end - found), name, length)); found++) {
        const char *behind = found + length;
        if (begins) return true;
        if (behind == end) continue;
        if (is_table ? *behind == '\0' : found > text && parts(found[-1]) && parts(*behind)) return true;
    }
    return false;
}

unsigned driver_calls_in(const char *text, size_t size, bool is_table) {
    unsigned calls = 0;
    for (int index = 0; index < NAMES; index++) {
        if (calls & names[index].calls) continue;
        if (has(text, size, names[index].text, names[index].begins, is_table)) calls |= names[index].calls;
    }
    return calls;
}
