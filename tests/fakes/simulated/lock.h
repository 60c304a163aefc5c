/* SPDX-License-Identifier: Apache-2.0
 *
 * The file locks behind state.h, which says why there are two kinds.
 */
#ifndef SIMULATED_LOCK_H
#define SIMULATED_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_identity {
    uint32_t pid;
    uint64_t start_time;
    uint64_t pid_namespace;
};

/* Who this process is. Read once and kept until a fork. */
struct process_identity process_identity(void);

/* Opens (or creates, for everybody) the file, takes the mutex, gives it `size` bytes and maps it. Returns the
 * descriptor, which must never be closed, with the mutex held, or a negative errno. */
int open_locked(const char *path, size_t size, void **mapping);

/* Excludes other descriptions, not other threads on the same one: the caller has a lock for those. Ends the
 * process if the descriptor is no longer ours, as nothing that is counted afterwards would be true. */
void lock_mutex(int descriptor);
void unlock_mutex(int descriptor);

/* Holds slot k until the process ends. Returns 0 or a negative errno. */
int hold_slot(int descriptor, uint32_t k);

/* Whether another process holds slot k, and its pid here (0: not seen from this pid namespace). */
bool slot_holder(int descriptor, uint32_t k, pid_t *pid);

/* Opens the file with a shared lock on one byte, which every duplicate of the descriptor keeps. Returns the
 * descriptor or a negative errno. */
int open_holding_byte(const char *path, uint32_t byte);

/* Whether any descriptor but this one keeps that lock. */
bool byte_is_held(int descriptor, uint32_t byte);

#endif
