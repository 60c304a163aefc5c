/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of backed ranges: what cuMemAlloc gave as addresses of its own, behind which lie pieces of
 * physical memory that can leave the device and come back. Sorted by address, in anonymous memory
 * (allocations.h says why). The lock is the mapping lock: who maps or unmaps a piece holds it, and so does
 * who uses a pointer into the table. It is never held while paused, nor across a synchronisation.
 */
#ifndef CONVGPU_RANGES_H
#define CONVGPU_RANGES_H

#include "tables/driver.h"

#include <convgpu/carrier.h>
#include <stdbool.h>
#include <stdint.h>

enum range_state {
    RANGE_LIVE,
    RANGE_CACHED, /* freed by the program, and kept for its next allocation (cache.h) */
    RANGE_FREED,  /* by the program: it ends once nothing uses it any more */
};

/* Whether something that was submitted before the free may still use a freed range. The thread that frees it
 * waits for that without the lock, and so may the mover: who is first ends the range, and the thread sees by
 * the id whether it did. */
enum range_quiet {
    RANGE_LOUD,  /* it may */
    RANGE_ASKED, /* a synchronisation is on its way, which will tell */
    RANGE_QUIET, /* no */
};

struct range {
    uint64_t address, size; /* of the mapping: whole granules */
    uint64_t asked;         /* bytes that the program asked for */
    uint64_t id;            /* of no other range of this process */
    CUcontext context;      /* in which it dies */
    CUdevice ordinal;
    int device; /* number of account.h */
    enum range_state state;
    uint32_t moving; /* pieces that the porter has been asked for */
    uint32_t out;    /* pieces that are on the host */
    bool fixed;      /* somebody else holds its memory or addresses: it does not leave the device */
    uint64_t name;   /* of descriptors that somebody may have, by which it stays there; 0: nobody has one */
    bool dying;      /* its context is being destroyed */
    enum range_quiet quiet;
    uint64_t *marks; /* one bit for each piece: it is out. Memory of the table's own when there are over 64 */
    uint64_t few_marks;
};

void ranges_lock(void);
void ranges_unlock(void);

/* Enters a range that overlaps with none. False without memory. */
bool ranges_insert(const struct range *range);

/* The range that begins at, or contains, the address; NULL for none. */
struct range *ranges_find(uint64_t address);
struct range *ranges_at(uint64_t address);

/* In ascending order of addresses; the first behind address 0. */
struct range *ranges_after(uint64_t address);

void ranges_remove(struct range *range);

/* Gives the range a new id: it is another allocation of the program, or none. */
void ranges_rename(struct range *range);

/* How many there are; read without the lock, to pass by quickly. */
bool ranges_is_empty(void);

/* A piece of a range: its address and size, and where it is. */
uint32_t range_pieces(const struct range *range);
uint64_t range_piece(const struct range *range, uint32_t index, uint64_t *size);
bool range_is_out(const struct range *range, uint32_t index);
void range_set_out(struct range *range, uint32_t index, bool out);

/* Bytes of the range that are on the host. */
uint64_t range_out_bytes(const struct range *range);

/* Forgets everything, the lock too: for the child of a fork. */
void ranges_reset(void);

#endif
