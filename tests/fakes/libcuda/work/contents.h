/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies at device addresses. Physical memory of cuMemCreate has a memfd of its own, which goes along when
 * it is exported, so that a mapping shows what was written through another one, also by another process. All
 * other memory of the process lies in one sparse memfd, at its address. Neither is mapped: a device address
 * is no pointer on the host, as on a card. Only pages that were written take memory of the host.
 * driver.mutex held, everywhere.
 */
#ifndef SIMULATED_CONTENTS_H
#define SIMULATED_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the address is a device's, and not the host's. */
bool contents_is_device(uint64_t address);

/* Whether all of the range may be touched: in reserved addresses only what is mapped with access. */
bool contents_present(uint64_t address, uint64_t size);

/* Copy between the host and the device. Return false if the range may not be touched or the host's memory is
 * not there. */
bool contents_read(uint64_t address, void *to, uint64_t size);
bool contents_write(uint64_t address, const void *from, uint64_t size);

/* Within devices. */
bool contents_move(uint64_t to, uint64_t from, uint64_t size);

/* Repeats the pattern; `size` is a multiple of `step`. */
bool contents_fill(uint64_t address, const void *pattern, size_t step, uint64_t size);

/* Memory that has no memfd of its own is gone. */
void contents_discard(uint64_t address, uint64_t size);

/* A memfd for so many bytes of physical memory, or -1. */
int contents_make(uint64_t size);

#endif
