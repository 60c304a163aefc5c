/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of gpu-hold.
 */
#ifndef GPU_HOLD_ARGUMENTS_H
#define GPU_HOLD_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

struct arguments {
    int device;          /* CUDA ordinal */
    double pause_before; /* seconds before each allocation */
    double hold;         /* seconds after the last one */
    bool wait_for_stdin; /* and then until a line or the end of stdin */
    bool check;          /* write to each allocation, and compare at the end */
    bool free;           /* free before the exit, instead of leaving it to the driver */
    size_t *step;        /* bytes of each allocation */
    size_t step_count;
};

/* Returns false, having said why on stderr, if the words cannot be understood. */
bool arguments_parse(struct arguments *arguments, int count, char **words);

#endif
