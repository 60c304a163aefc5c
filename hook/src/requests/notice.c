/* SPDX-License-Identifier: Apache-2.0 */
#include "requests/notice.h"

#include "base/log.h"
#include "base/size_text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LONGEST = 86400 * 1000, SHORTEST = 100 }; /* ms */

/* As the durations of the command line: a number with ms, s, m or h behind it, or nothing. */
static uint32_t parse(const char *text) {
    static const struct {
        const char *unit;
        uint64_t milliseconds;
    } units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};
    uint64_t number = 0;
    size_t digits = strspn(text, "0123456789");
    if (strcmp(text, "never") == 0 || strcmp(text, "0") == 0) return UINT32_MAX;
    if (digits == 0 || digits > 8) return 0;
    for (size_t at = 0; at < digits; at++) number = number * 10 + (uint64_t)(text[at] - '0');
    for (size_t row = 0; row < sizeof units / sizeof units[0]; row++) {
        if (strcmp(text + digits, units[row].unit) != 0) continue;
        number *= units[row].milliseconds;
        return (uint32_t)(number > LONGEST ? LONGEST : number < SHORTEST ? SHORTEST : number);
    }
    return 0;
}

uint32_t notice_after(void) {
    const char *text = getenv("CONVGPU_NOTICE");
    uint32_t after = text ? parse(text) : 0;
    if (text && *text && after == 0)
        log_debug("CONVGPU_NOTICE=%s is no time (500ms, 30s, 5m, never) and counts as not set", text);
    return after;
}

uint64_t notice_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void notice_begin(const char *why) {
    log_notice("paused: %s", why);
}

void notice_end(const char *call, uint64_t size, uint64_t began, bool accepted) {
    char text[SIZE_TEXT];
    unsigned long long tenths = (notice_clock() - began + 50) / 100;
    log_notice("%s after %llu.%llu s: %s of %s.", accepted ? "goes on" : "its pause ended without memory",
               tenths / 10, tenths % 10, call, size_text(text, size));
}
