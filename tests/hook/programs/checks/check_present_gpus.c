/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of hook/src/gpus/present_gpus.c: `check CARDS FILES ROOM` prints what it finds, a UUID in each
 * line.
 */
#include "gpus/present_gpus.h"

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    uint8_t uuid[64][UUID_BYTES];
    char text[UUID_TEXT_SIZE];
    if (count != 4) return 2;
    uint32_t found = present_gpus(words[1], words[2], uuid, (uint32_t)atoi(words[3]));
    for (uint32_t row = 0; row < found; row++) {
        uuid_to_text(uuid[row], text);
        puts(text);
    }
    return 0;
}
