/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit test of hook/src/backing/ranges.c against a plain model: an array of ranges in no order. Says what
 * failed, and exits 1.
 */
#include "backing/ranges.h"

#include <stdio.h>
#include <stdlib.h>

enum { RANGES = 300, TURNS = 200000 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static const uint64_t first = UINT64_C(0x7f0000000000), step = UINT64_C(16) << 30;
static struct {
    uint64_t size; /* 0: not there */
    uint64_t out;  /* bytes */
    unsigned char is_out[256];
} model[RANGES];
static uint64_t seed = 88172645463325252u;

static uint64_t number(uint64_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static uint64_t address_of(size_t place) {
    return first + place * step;
}

static void change(size_t place) {
    uint64_t size;
    struct range *range = ranges_find(address_of(place));
    CHECK((range != NULL) == (model[place].size > 0));
    if (!range) {
        struct range fresh = {.address = address_of(place),
                              .size = (1 + number(8000)) * CONVGPU_PIECE_GRANULE};
        CHECK(ranges_insert(&fresh));
        model[place].size = fresh.size;
        return;
    }
    if (number(4) == 0) {
        ranges_remove(range);
        model[place].size = model[place].out = 0;
        for (int index = 0; index < 256; index++) model[place].is_out[index] = 0;
        return;
    }
    uint32_t index = (uint32_t)number(range_pieces(range));
    bool out = number(2);
    CHECK(range_piece(range, index, &size) == range->address + index * CONVGPU_PIECE_SIZE);
    CHECK(range_is_out(range, index) == model[place].is_out[index]);
    if (out != model[place].is_out[index]) model[place].out += out ? size : 0 - size;
    range_set_out(range, index, out);
    model[place].is_out[index] = out;
    CHECK(range_out_bytes(range) == model[place].out);
}

static void look_around(size_t place) {
    uint64_t inside = address_of(place) + (model[place].size ? number(model[place].size) : 0);
    const struct range *range = ranges_at(inside);
    CHECK((range != NULL) == (model[place].size > 0));
    if (range) CHECK(range->address == address_of(place) && range->size == model[place].size);
    CHECK(ranges_at(address_of(place) + model[place].size) == NULL);
    size_t next = place + 1;
    while (next < RANGES && model[next].size == 0) next++;
    const struct range *behind = ranges_after(address_of(place));
    CHECK(next == RANGES ? behind == NULL : behind && behind->address == address_of(next));
}

int main(void) {
    uint64_t all = 0;
    CHECK(ranges_is_empty() && !ranges_after(0));
    for (int turn = 0; turn < TURNS; turn++) {
        change(number(RANGES));
        look_around(number(RANGES));
    }
    for (size_t place = 0; place < RANGES; place++) all += model[place].size > 0;
    for (const struct range *range = ranges_after(0); range; range = ranges_after(range->address)) all--;
    CHECK(all == 0);
    ranges_reset();
    CHECK(ranges_is_empty());
    return 0;
}
