/* SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char usage[] =
    "usage: gpu-hold [--device N] [--steps S] [--pause-before SECONDS] [--hold SECONDS] [--wait-for-stdin]\n"
    "                [--check] [--free] SIZE...\n"
    "SIZE: bytes, or as Docker writes it (512m, 2g), or in IEC form (2GiB)\n";

static bool parse_size(const char *word, size_t *size) {
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"", 0},     {"b", 0},  {"k", 10},   {"kib", 10}, {"m", 20},
                 {"mib", 20}, {"g", 30}, {"gib", 30}, {"t", 40},   {"tib", 40}};
    if (!isdigit((unsigned char)*word)) return false;
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(word, &end, 10);
    if (errno != 0) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(end, units[i].suffix) != 0) continue;
        *size = (size_t)number << units[i].shift;
        return *size >> units[i].shift == number && *size > 0;
    }
    return false;
}

static bool parse_seconds(const char *word, double *seconds) {
    char *end = NULL;
    *seconds = strtod(word, &end);
    return end != word && *end == '\0' && *seconds >= 0 && *seconds < 1e9;
}

static bool parse_count(const char *word, long least, long *number) {
    char *end = NULL;
    *number = strtol(word, &end, 10);
    return end != word && *end == '\0' && *number >= least && *number <= 1000000;
}

static bool parse_option(struct arguments *arguments, int option, long *steps) {
    long device = 0;
    switch (option) {
    case 'd':
        if (!parse_count(optarg, 0, &device)) return false;
        arguments->device = (int)device;
        return true;
    case 's':
        return parse_count(optarg, 1, steps);
    case 'p':
        return parse_seconds(optarg, &arguments->pause_before);
    case 'h':
        return parse_seconds(optarg, &arguments->hold);
    case 'w':
        return arguments->wait_for_stdin = true;
    case 'c':
        return arguments->check = true;
    case 'f':
        return arguments->free = true;
    default:
        return false;
    }
}

/* Each SIZE in `steps` equal parts; the last takes what is left over. */
static bool parse_sizes(struct arguments *arguments, char **words, size_t count, size_t steps) {
    arguments->step = calloc(count * steps + 1, sizeof *arguments->step);
    if (arguments->step == NULL) return false;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        if (!parse_size(words[i], &size) || size < steps) {
            fprintf(stderr, "gpu-hold: not a size: %s\n", words[i]);
            return false;
        }
        for (size_t step = 0; step < steps; step++) {
            size_t rest = step + 1 == steps ? size % steps : 0;
            arguments->step[arguments->step_count++] = size / steps + rest;
        }
    }
    return true;
}

bool arguments_parse(struct arguments *arguments, int count, char **words) {
    static const struct option options[] = {
        {"device", required_argument, NULL, 'd'},
        {"steps", required_argument, NULL, 's'},
        {"pause-before", required_argument, NULL, 'p'},
        {"hold", required_argument, NULL, 'h'},
        {"wait-for-stdin", no_argument, NULL, 'w'},
        {"check", no_argument, NULL, 'c'},
        {"free", no_argument, NULL, 'f'},
        {NULL, 0, NULL, 0},
    };
    *arguments = (struct arguments){.device = 0};
    long steps = 1;
    for (int option; (option = getopt_long(count, words, "", options, NULL)) != -1;) {
        if (parse_option(arguments, option, &steps)) continue;
        fputs(usage, stderr);
        return false;
    }
    if (parse_sizes(arguments, words + optind, (size_t)(count - optind), (size_t)steps)) return true;
    fputs(usage, stderr);
    return false;
}
