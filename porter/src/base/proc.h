/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PORTER_PROC_H
#define PORTER_PROC_H

#include <stdbool.h>
#include <stdint.h>

/* Returns a pidfd of the process that started then, in ticks since the boot; -1: it has ended. */
int proc_open(uint32_t pid, uint64_t started);

bool proc_has_ended(int pidfd);

#endif
