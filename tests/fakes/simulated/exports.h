/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that was exported as a descriptor, and so may outlive the process that made it.
 *
 * Who refers to it holds a descriptor with a shared lock on one byte of the file `devices`: its reference.
 * The kernel drops the lock with the last duplicate of the descriptor, wherever that is: in a process, or on
 * its way through a socket. While the process that made the memory refers to it, the memory counts in that
 * process's slot; after that it is an orphan, and counts by itself until nobody holds the lock.
 */
#ifndef SIMULATED_EXPORTS_H
#define SIMULATED_EXPORTS_H

#include "simulated/state.h"

#define NOT_EXPORTED UINT32_MAX

/* Enters memory that the process's slot counts. Returns its row with the first reference in *reference, or
 * NOT_EXPORTED if there is no row or descriptor left. */
uint32_t export_enter(struct simulated_state *state, unsigned device, uint64_t size, int *reference);

/* The process that made it refers to it no more; its reference was closed before. */
void export_leave(struct simulated_state *state, uint32_t row);

/* While the process has a reference: it refers to it again, or not for now. */
void export_return(struct simulated_state *state, uint32_t row);
void export_park(struct simulated_state *state, uint32_t row);

/* Another process closed its reference, or this one while it was parked. */
void export_closed(struct simulated_state *state, uint32_t row);

/* Orphans that nobody refers to any more are given back. Mutex of the state held. */
void exports_sweep(struct simulated_state *state);

/* The process of the slot has died: what others still refer to becomes orphans. Mutex of the state held. */
void exports_of_dead(struct simulated_state *state, uint32_t slot);

/* Whether the slot's process holds memory that it exported. */
bool exports_held(struct simulated_state *state, uint32_t slot);

/* Bytes of the device that orphans take. Mutex of the state held. */
uint64_t exports_used(const struct shared_state *shared, unsigned device);

#endif
