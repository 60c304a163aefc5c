/* SPDX-License-Identifier: Apache-2.0 */
#include "functions/short_path.h"

#include <string.h>

enum { WORDS = (1 << SHORT_PATH_BITS) / 32 };

_Alignas(64) _Atomic uint32_t short_path_bits[WORDS];
static uint32_t all[1 << SHORT_PATH_BITS];     /* how many handles there are of each hash */
static uint32_t waiting[1 << SHORT_PATH_BITS]; /* and how many of them wait */
static bool opened, shut;

static void show(unsigned index) {
    uint32_t bits = 0;
    for (unsigned bit = 0; bit < 32; bit++)
        if (waiting[index * 32 + bit] == 0) bits |= UINT32_C(1) << bit;
    atomic_store_explicit(&short_path_bits[index], opened && !shut ? bits : 0, memory_order_release);
}

static void show_all(void) {
    for (unsigned index = 0; index < WORDS; index++) show(index);
}

void short_path_add(word function) {
    unsigned hash = short_path_hash(function);
    all[hash]++;
    waiting[hash]++;
    show(hash / 32);
}

void short_path_release(word function) {
    unsigned hash = short_path_hash(function);
    waiting[hash]--;
    show(hash / 32);
}

void short_path_remove(word function, bool waits) {
    unsigned hash = short_path_hash(function);
    all[hash]--;
    waiting[hash] -= waits;
    show(hash / 32);
}

void short_path_close_all(void) {
    memcpy(waiting, all, sizeof all);
    show_all();
}

void short_path_open(void) {
    if (opened) return;
    opened = true;
    show_all();
}

void short_path_shut(void) {
    shut = true;
    show_all();
}

bool short_path_is_shut(void) {
    return shut;
}

void short_path_reset(void) {
    opened = shut = false;
    memset(all, 0, sizeof all);
    short_path_close_all();
}
