/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors by which a program exported memory: as long as anybody has one, the driver keeps the memory,
 * and counts it for nobody once the program has released it (docs/decisions/0205).
 *
 * Who has it open, cannot be asked: it may be here under another number, in another process, in a message on
 * its way, or in a network card's driver. But an epoll instance knows each file that is registered with it
 * until the last descriptor is closed, wherever that is, and does not keep the file open itself (epoll(7),
 * questions and answers). /proc/self/fdinfo lists what is registered (proc_pid_fdinfo(5)).
 */
#ifndef CONVGPU_DESCRIPTORS_H
#define CONVGPU_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

/* From now on the file of the descriptor has that name; several may have the same. Where that is impossible,
 * nobody will be known to have it open. Starts a thread, so no lock may be held. Keeps errno. */
void descriptors_watch(uint64_t name, int descriptor);

/* Whether anybody has a file of that name open. Takes some 20 us, and 2 us for each open file of others. */
bool descriptors_are_open(uint64_t name);

/* Shows the name of each file that anybody has open, to `each`. */
typedef void descriptors_each(uint64_t name, void *argument);
void descriptors_visit(descriptors_each *each, void *argument);

/* `count` things more (or less) wait until nobody has their files open: while any does, the thread lets all
 * families reclaim (tables/registry.h) every 250 ms. */
void descriptors_wait_for(int count);

#endif
