/* SPDX-License-Identifier: Apache-2.0
 *
 * [.visible] .global [.attribute(...)] [.align N] [.v2] .TYPE NAME[N][N] [= ...], NAME ...;
 */
#include "images/ptx.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char blank[] = " \t\r\n";

static const char *skip(const char *text) {
    return text + strspn(text, blank);
}

static uint64_t product(uint64_t one, uint64_t other) {
    uint64_t result;
    return __builtin_mul_overflow(one, other, &result) ? UINT64_MAX : result;
}

static uint64_t sum(uint64_t one, uint64_t other) {
    uint64_t result;
    return __builtin_add_overflow(one, other, &result) ? UINT64_MAX : result;
}

/* Bytes of a type (.b8, .f64), elements of a vector (.v4); 0 for any other word. */
static uint64_t width(const char *word, bool *is_vector) {
    *is_vector = word[1] == 'v';
    if (strchr("bsufv", word[1]) == NULL || word[2] < '0' || word[2] > '9') return 0;
    uint64_t number = strtoull(word + 2, NULL, 10);
    return *is_vector ? number : number / 8;
}

/* Reads the words before the first name; returns where that is. */
static const char *read_type(const char *text, uint64_t *each) {
    uint64_t elements = 1, bytes = 0;
    bool is_vector;
    for (text = skip(text); *text == '.'; text = skip(text)) {
        size_t length = strcspn(text + 1, " \t\r\n.(;") + 1;
        uint64_t size = width(text, &is_vector);
        if (size > 0 && is_vector) elements = size;
        if (size > 0 && !is_vector) bytes = size;
        bool is_aligned = strncmp(text, ".align", length) == 0;
        text = skip(text + length);
        if (is_aligned) text += strspn(text, "0123456789");
        if (*text == '(') text += strcspn(text, ")") + (strchr(text, ')') != NULL);
    }
    *each = product(elements, bytes);
    return text;
}

/* Reads names with their dimensions, up to what stands after the last. */
static uint64_t read_names(const char *text, uint64_t each) {
    uint64_t all = 0;
    for (;;) {
        uint64_t size = each;
        text = skip(text);
        text = skip(text + strcspn(text, " \t\r\n[,;="));
        while (*text == '[') {
            size = product(size, strtoull(text + 1, NULL, 0));
            text += strcspn(text, "]");
            text = skip(text + (*text == ']'));
        }
        all = sum(all, size);
        if (*text != ',') return all;
        text++;
    }
}

/* A declaration, and not a part of an instruction (ld.global), of an import, or of a parameter's type, which
 * has no type of its own here. */
static bool is_declared(const char *text, const char *found, size_t length) {
    static const char import[] = ".extern";
    if (found[length] == '\0' || strchr(blank, found[length]) == NULL) return false;
    if (found > text && strchr(" \t\r\n;}", found[-1]) == NULL) return false;
    while (found > text && strchr(blank, found[-1]) != NULL) found--;
    size_t before = (size_t)(found - text), word = sizeof import - 1;
    return before < word || strncmp(found - word, import, word) != 0;
}

uint64_t ptx_variables(const char *text) {
    static const char directive[] = ".global";
    const char *found = text;
    uint64_t all = 0, each;
    while ((found = strstr(found, directive)) != NULL) {
        bool declared = is_declared(text, found, sizeof directive - 1);
        found += sizeof directive - 1;
        if (!declared) continue;
        found = read_type(found, &each);
        if (each > 0) all = sum(all, read_names(found, each));
    }
    return all;
}
