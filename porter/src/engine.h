/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy engines: for each device a lane that copies out and one that copies in, which work at the same
 * time. Each imports pieces, has up to eight of them in flight, and answers in the order of the jobs.
 */
#ifndef PORTER_ENGINE_H
#define PORTER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/pool.h"

struct device;
struct process;

/* One OUT or IN. Whoever makes it gives it to engine_submit, which gives it to `finish`. */
struct job {
    struct process *process;
    struct copy_name name;
    uint64_t most;    /* OUT: bytes of copies that the process may have */
    uint64_t carrier; /* number of the carrier it came on */
    uint64_t size;
    uint32_t row;   /* of the process's WELCOME */
    int descriptor; /* -1 once it has been imported */
    bool in;
    struct copy *copy;
    struct job *next;
};

struct engine_hooks {
    /* Whether anybody still waits for the answer. */
    bool (*wanted)(const struct job *job);
    /* `error`: 0, or enum convgpu_carrier_error. Ends the copy, and frees the job. */
    void (*finish)(struct job *job, uint32_t error, uint64_t nanoseconds);
};

/* Lists the devices. False: it logged why. */
bool engine_start(const struct engine_hooks *hooks);

/* Returns the device, with its context and threads; NULL if it is not there, or logged why it cannot be used.
 */
struct device *engine_device(const uint8_t *uuid);

void engine_submit(struct device *device, struct job *job);

/* Waits until all jobs that were submitted are finished. */
void engine_finish(void);

#endif
