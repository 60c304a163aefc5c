/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of the pool and the units in them; pool_lock is held in all functions but units_open and those of
 * the index, which are one atomic each. Used by pool.c (copies) and growth.c (memory).
 */
#ifndef PORTER_UNITS_H
#define PORTER_UNITS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/pool.h"

#define UNITS_MOST (UINT32_C(1) << 20)               /* 2 TiB */
#define PART_UNITS ((UINT32_C(1) << 30) / POOL_UNIT) /* memory is made and registered in parts of 1 GiB */

enum unit_state { UNIT_FREE = 0, UNIT_FILLING = 1, UNIT_FULL = 2 };

/* An entry of the index file. `state` is written last when a unit is taken. */
struct unit {
    _Atomic uint32_t state;
    uint32_t pid;
    uint64_t started;
    uint64_t piece;
    uint8_t device[16];
    uint32_t part, parts; /* which unit of the piece, and of how many */
};

extern pthread_mutex_t pool_lock;

bool units_open(const char *path);

/* How many units the pool can have at most. */
uint32_t units_most(void);

/* How many units the data file has room for. */
uint32_t units_count(void);
struct unit *units_entry(uint32_t number);
void *units_address(uint32_t number);

/* Takes `wanted` free units, in one run if there is one. False: there are not as many. */
bool units_take(uint32_t *units, unsigned wanted);
void units_give(const uint32_t *units, unsigned count);

/* A unit of an earlier porter's copy is in use. */
void units_claim(uint32_t number);

/* The rest of an earlier porter's file is free. */
void units_offer(void);

/* Whether a registration begins with this unit: no copy operation may go over that border. */
bool units_begins_registration(uint32_t number);

/* ---- for growth.c
 * ------------------------------------------------------------------------------------------ */

/* Changes the size of the data file, and maps what is new. Returns 0 or an errno. */
int units_resize(uint32_t count);

/* Makes new units free. */
void units_add(uint32_t first, uint32_t count);

/* Takes free units from `first` on out of use; says whether all of them are. */
bool units_withdraw(uint32_t first, uint32_t count);

/* Makes withdrawn units below `end` free again. */
void units_return(uint32_t end);

void units_mark_registration(uint32_t number, bool begins);

/* Copies in use, in units. */
uint32_t units_used(void);

/* Wakes the thread that changes the size of the pool. */
void growth_wake(void);

#endif
