/* SPDX-License-Identifier: Apache-2.0 */
#include "gpus/uuid_text.h"

#include <string.h>

void uuid_to_text(const uint8_t uuid[UUID_BYTES], char text[UUID_TEXT_SIZE]) {
    static const char digits[] = "0123456789abcdef", prefix[] = "GPU-";
    memcpy(text, prefix, sizeof prefix - 1);
    char *next = text + sizeof prefix - 1;
    for (unsigned byte = 0; byte < UUID_BYTES; byte++) {
        if (byte == 4 || byte == 6 || byte == 8 || byte == 10) *next++ = '-';
        *next++ = digits[uuid[byte] >> 4];
        *next++ = digits[uuid[byte] & 0xf];
    }
    *next = '\0';
}

bool uuid_parse(const char *text, uint8_t uuid[UUID_BYTES]) {
    const char *next = strchr(text, '-');
    unsigned digit = 0;
    for (; next && digit < 2 * UUID_BYTES; next++) {
        if (*next == '-') continue;
        int value = *next >= '0' && *next <= '9'   ? *next - '0'
                    : *next >= 'a' && *next <= 'f' ? *next - 'a' + 10
                    : *next >= 'A' && *next <= 'F' ? *next - 'A' + 10
                                                   : -1;
        if (value < 0) return false;
        uuid[digit / 2] = (uint8_t)(digit % 2 ? uuid[digit / 2] | value : value << 4);
        digit++;
    }
    return next != NULL;
}
