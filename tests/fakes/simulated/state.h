/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of the simulated devices, shared by every process that maps the file `state`.
 *
 * Invariant: used[d] = sum of slot[k].used[d] over all slots, and of the orphans of exports.h; used[d] <=
 * total. These are the truth; used[] is their sum, kept so that an allocation costs no walk, and computed
 * again when a process died between the two writes (`changing`).
 *
 * Two kinds of lock on `state`, both dropped by the kernel however a process ends:
 * - the mutex is an open-file-description lock, because libcuda.so.1 and libnvidia-ml.so.1 of one process
 * must exclude each other, which record locks of one process do not;
 * - a slot is held by a POSIX record lock, because only those tell the asker the holder's pid (F_GETLK), and
 * in the asker's own pid namespace. Closing any descriptor of the file drops all record locks of the process.
 * So nobody here ever closes one, and the libraries are linked with -z nodelete. Both kinds lie beyond the
 * end of the file, away from the data.
 *
 * A third lock is on `devices`, held by the slot's control descriptor: as on a card, memory of a dead process
 * stays, and NVML lists it under its pid, as long as a copy of that descriptor is open anywhere.
 */
#ifndef SIMULATED_STATE_H
#define SIMULATED_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "simulated/configuration.h"

#define SIMULATED_MAGIC   UINT64_C(0x3455504744454d53) /* changes with the layout */
#define SIMULATED_SLOTS   4096u
#define SIMULATED_NO_SLOT UINT32_MAX
#define SIMULATED_EXPORTS 16384u

enum slot_phase {
    SLOT_FREE = 0,
    SLOT_HELD = 1,     /* by a process, which may have died: unnoticed yet, or kept by others */
    SLOT_SETTLING = 2, /* its process is known to be dead; used[] falls to 0 as time passes */
};

struct shared_slot {
    uint32_t phase;
    uint32_t pid;             /* as the holder sees itself; with the next two its identity for itself */
    uint64_t start_time;      /* clock ticks since boot */
    uint64_t pid_namespace;   /* inode number */
    uint64_t outer_namespace; /* likewise, of one from which its memory was listed last */
    uint32_t outer_pid;       /* that it has there; 0: none is known */
    uint64_t used[SIMULATED_DEVICES_MAX];       /* bytes, contexts included */
    uint64_t settled_at[SIMULATED_DEVICES_MAX]; /* CLOCK_MONOTONIC ns, while settling */
    uint64_t unlisted[SIMULATED_DEVICES_MAX];   /* bytes of `used` that NVML does not list for the process */
    uint64_t saved[SIMULATED_DEVICES_MAX];      /* bytes that a checkpoint took off the device */
    _Atomic uint32_t checkpoint;                /* CU_PROCESS_STATE_*: whether its calls wait */
    _Atomic uint64_t busy_until; /* CLOCK_MONOTONIC ns: when what it submitted is done, as far as known */
};

enum export_phase {
    EXPORT_FREE = 0,
    EXPORT_HELD = 1,   /* by the process that made it, whose slot counts it */
    EXPORT_ORPHAN = 2, /* by others only; counts by itself */
};

struct shared_export {
    uint32_t phase;
    uint32_t slot; /* of its maker */
    uint32_t device;
    uint32_t reserved;
    uint64_t size;
};

enum copy_direction { COPY_OUT, COPY_IN, COPY_DIRECTIONS };

struct shared_state {
    uint64_t magic; /* written last: a first process killed in the middle leaves an uninitialised file */
    uint64_t fingerprint; /* of the devices */
    uint32_t slot_count;  /* slots from here on were never used or are free */
    _Atomic uint32_t changing;
    uint32_t cursor;       /* the slot from which the next look for deaths goes on */
    uint32_t export_count; /* rows from here on are free */
    uint64_t used[SIMULATED_DEVICES_MAX];
    struct shared_slot slot[SIMULATED_SLOTS];
    /* CLOCK_MONOTONIC ns: when each copy engine is free again, for all processes. */
    _Atomic uint64_t engine[SIMULATED_DEVICES_MAX][COPY_DIRECTIONS];
    struct shared_export export[SIMULATED_EXPORTS];
};

/* A process's view. One per library, for ever. */
struct simulated_state {
    struct simulated_configuration configuration;
    struct shared_state *shared;
    int descriptor;
    int references; /* a descriptor of `devices`, to ask for the locks of exports.h */
    uint32_t slot;  /* SIMULATED_NO_SLOT unless state_claim_slot succeeded */
};

struct simulated_process {
    pid_t pid;     /* in the asker's pid namespace */
    uint64_t used; /* bytes */
};

/* Opens and maps `state` beside `devices`, initialising it under the mutex if nobody has. Returns 0 or a
 * negative errno; -EBUSY if living processes use the file with other devices. */
int state_open(struct simulated_state *state);

/* Gives the process a slot until it ends. Returns 0, -EAGAIN if all are held, or a negative errno. */
int state_claim_slot(struct simulated_state *state);

/* Takes `size` bytes of the device, or returns false if they are not free. Needs a slot. */
bool state_take(struct simulated_state *state, unsigned device, uint64_t size);

/* Gives back what was taken. The memory is free at once: only a dead process's memory settles. */
void state_give(struct simulated_state *state, unsigned device, uint64_t size);

/* Of what was taken, NVML lists `size` bytes less for the process (or again, if negative). */
void state_unlist(struct simulated_state *state, unsigned device, int64_t size);

/* Bytes of the device that an allocation could take now. */
uint64_t state_free(struct simulated_state *state, unsigned device);

/* Fills up to `capacity` rows with the processes that hold memory of the device, also dead ones whose memory
 * others keep, and that the asker's pid namespace can see. Returns how many there are, which may be more. */
unsigned state_processes(struct simulated_state *state, unsigned device, struct simulated_process *row,
                         unsigned capacity);

/* The slot of a process by its pid here, or SIMULATED_NO_SLOT. */
uint32_t state_slot_of(struct simulated_state *state, pid_t pid);

/* Takes all memory of the slot off the devices, or brings it back; returns false if there is no room for all
 * of it. Both say how many bytes that were. */
uint64_t state_save(struct simulated_state *state, struct shared_slot *slot);
bool state_restore(struct simulated_state *state, struct shared_slot *slot, uint64_t *bytes);

/* Excludes every other process and library. */
void state_lock(struct simulated_state *state);
void state_unlock(struct simulated_state *state);

/* In a forked child, which has the parent's mapping and descriptor, but not its slot. */
void state_abandon(struct simulated_state *state);

#endif
