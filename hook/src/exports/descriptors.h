/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors by which a program exported memory: as long as anybody has one, the driver keeps the memory,
 * and counts it for nobody once the program has released it (docs/decisions/0205).
 *
 * Who has it open, cannot be asked: it may be here under another number, in another process, in a message on
 * its way, or in a network card's driver. But an epoll instance knows each file that is registered with it
 * until the last descriptor is closed, wherever that is, and does not keep the file open itself (epoll(7),
 * questions and answers). fdinfo lists what is registered (proc_pid_fdinfo(5)).
 */
#ifndef CONVGPU_DESCRIPTORS_H
#define CONVGPU_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

/* A name that nothing had before. */
uint64_t descriptors_new_name(void);

/* Gives a descriptor a high number, out of the way of those that programs close; the same without room. */
int descriptors_raise(int low);

/* Returns how many of our lists the program has closed so far: what only those knew, seems to be closed. */
uint32_t descriptors_lost(void);

/* Around an export and descriptors_watch(): meanwhile everything may be open. */
void descriptors_begin(void);
void descriptors_end(void);

/* From now on the file of the descriptor has that name; several may have the same, and a file several. False:
 * there is no room for it, and nobody would know. Keeps errno. */
bool descriptors_watch(uint64_t name, int descriptor);

/* Whether anybody has a file of that name open, or nobody can tell. Takes some 20 us, and 2 us for each open
 * file of a sixteenth of all names. */
bool descriptors_may_be_open(uint64_t name);

/* Shows the name of each file that anybody has open, to `each`. False: maybe not all of them. */
typedef void descriptors_each(uint64_t name, void *argument);
bool descriptors_visit(descriptors_each *each, void *argument);

/* `count` things more (or less) wait until nobody has their files open: while any does, a thread calls
 * registry_unkeep() every 250 ms. descriptors_start() starts it; no lock may be held. */
void descriptors_wait_for(int count);
void descriptors_start(void);

#endif
