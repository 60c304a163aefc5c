/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size_text.h"

#include <stdio.h>

/* Hundredths are rounded to the nearest, as Python's %.2f does it, and end with no zero. */
const char *size_text(char text[SIZE_TEXT], uint64_t size) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (unit < 4 && size >> (10 * (unit + 1))) unit++;
    uint64_t whole = size >> (10 * unit), rest = unit ? size - (whole << (10 * unit)) : 0;
    uint64_t half = unit ? (uint64_t)1 << (10 * unit - 1) : 0;
    unsigned hundredths = (unsigned)((rest * 100 + half) >> (10 * unit));
    if (hundredths == 100) whole++, hundredths = 0;
    if (hundredths == 0)
        snprintf(text, SIZE_TEXT, "%llu%s", (unsigned long long)whole, names[unit]);
    else if (hundredths % 10 == 0)
        snprintf(text, SIZE_TEXT, "%llu.%u%s", (unsigned long long)whole, hundredths / 10, names[unit]);
    else
        snprintf(text, SIZE_TEXT, "%llu.%02u%s", (unsigned long long)whole, hundredths, names[unit]);
    return text;
}
