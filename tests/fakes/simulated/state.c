/* SPDX-License-Identifier: Apache-2.0 */
#include "simulated/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "simulated/exports.h"
#include "simulated/lock.h"

#define GIB (UINT64_C(1) << 30)
#define SOME_SLOTS                                                                                           \
    64u /* a question notices the deaths of so many processes at once, of more in a few rounds */
#define MUCH                                                                                                 \
    (UINT64_C(64) << 20) /* who has so much is asked about each time: a card lists nobody who has ended */
#define ALL_SLOTS SIMULATED_SLOTS

static uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t settle_ns(const struct simulated_state *state, uint64_t size) {
    return (uint64_t)((double)state->configuration.settle_us_per_gib * 1000.0 * (double)size / (double)GIB);
}

/* The one place where memory changes hands. Mutex held. A process killed inside leaves `changing` set. */
static void change(struct simulated_state *state, struct shared_slot *slot, unsigned device, uint64_t used) {
    struct shared_state *shared = state->shared;
    atomic_store_explicit(&shared->changing, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    shared->used[device] = shared->used[device] - slot->used[device] + used;
    slot->used[device] = used;
    atomic_store_explicit(&shared->changing, 0, memory_order_release);
}

static void recompute(struct simulated_state *state) {
    struct shared_state *shared = state->shared;
    for (unsigned device = 0; device < state->configuration.device_count; device++) {
        uint64_t used = exports_used(shared, device);
        for (uint32_t k = 0; k < shared->slot_count; k++) used += shared->slot[k].used[device];
        shared->used[device] = used;
    }
    atomic_store_explicit(&shared->changing, 0, memory_order_release);
}

void state_lock(struct simulated_state *state) {
    lock_mutex(state->descriptor);
    if (atomic_load_explicit(&state->shared->changing, memory_order_acquire) != 0) recompute(state);
}

void state_unlock(struct simulated_state *state) {
    unlock_mutex(state->descriptor);
}

/* F_GETLK does not report the asker's own locks, so a slot without a holder may still be this process's: that
 * of the other library, or of this one. */
static bool is_own(const struct shared_slot *slot) {
    struct process_identity own = process_identity();
    return slot->pid == own.pid && slot->start_time == own.start_time &&
           slot->pid_namespace == own.pid_namespace;
}

/* Whether the slot's process lives; then *pid is its pid here, or 0 if this pid namespace does not see it. */
static bool find_holder(const struct simulated_state *state, uint32_t k, pid_t *pid) {
    *pid = getpid();
    if (k == state->slot) return true;
    if (slot_holder(state->descriptor, k, pid)) return true;
    *pid = getpid();
    return is_own(&state->shared->slot[k]);
}

/* The byte of `devices` whose lock a slot's control descriptor has, beyond those of exports.h. */
static uint32_t control_byte(uint32_t k) {
    return SIMULATED_EXPORTS + k;
}

/* Whether a copy of the control descriptor of the slot's process is open: in another one, or on its way
 * through a socket. */
static bool is_kept(const struct simulated_state *state, uint32_t k) {
    return byte_is_held(state->references, control_byte(k));
}

/* Mutex held. */
static void settle(struct simulated_state *state, struct shared_slot *slot, uint64_t now) {
    bool empty = true;
    for (unsigned device = 0; device < state->configuration.device_count; device++) {
        if (slot->used[device] == 0) continue;
        /* A time further away than settling lasts is from before a reboot. */
        uint64_t latest = now + settle_ns(state, slot->used[device]);
        if (slot->settled_at[device] <= now || slot->settled_at[device] > latest) {
            change(state, slot, device, 0);
        } else {
            empty = false;
        }
    }
    if (empty) slot->phase = SLOT_FREE;
}

/* Mutex held. */
static bool has_much(const struct simulated_state *state, const struct shared_slot *slot) {
    for (unsigned device = 0; device < state->configuration.device_count; device++) {
        if (slot->used[device] >= MUCH) return true;
    }
    return false;
}

/* Has the memory of a held slot settle if its process has died. Mutex held. */
static void notice_death(struct simulated_state *state, uint32_t k, uint64_t now) {
    struct shared_slot *slot = &state->shared->slot[k];
    pid_t pid;
    if (find_holder(state, k, &pid) || is_kept(state, k)) return;
    exports_of_dead(state, k);
    for (unsigned device = 0; device < state->configuration.device_count; device++) {
        slot->settled_at[device] = now + settle_ns(state, slot->used[device]);
    }
    slot->phase = SLOT_SETTLING;
}

/* Notices deaths among those who have much, and `most` others, the next ones each time. Mutex held. */
static void notice_deaths(struct simulated_state *state, uint32_t most, uint64_t now) {
    struct shared_state *shared = state->shared;
    for (uint32_t k = 0; k < shared->slot_count; k++) {
        if (shared->slot[k].phase == SLOT_HELD && has_much(state, &shared->slot[k]))
            notice_death(state, k, now);
    }
    uint32_t visited = 0;
    for (uint32_t asked = 0; visited < shared->slot_count && asked < most; visited++) {
        uint32_t k = (shared->cursor + visited) % shared->slot_count;
        if (shared->slot[k].phase != SLOT_HELD || has_much(state, &shared->slot[k])) continue;
        asked++;
        notice_death(state, k, now);
    }
    if (shared->slot_count > 0) shared->cursor = (shared->cursor + visited) % shared->slot_count;
}

/* Notices deaths and lets time pass. Mutex held. Not on the way of an allocation that fits: it costs an
 * F_GETLK per slot asked, and that walks all locks of the file in the kernel (10 us each with 1,000
 * processes). */
static void sweep(struct simulated_state *state, uint32_t most) {
    struct shared_state *shared = state->shared;
    uint64_t now = monotonic_ns();
    notice_deaths(state, most, now);
    for (uint32_t k = 0; k < shared->slot_count; k++) {
        if (shared->slot[k].phase == SLOT_SETTLING) settle(state, &shared->slot[k], now);
    }
    exports_sweep(state);
    while (shared->slot_count > 0 && shared->slot[shared->slot_count - 1].phase == SLOT_FREE) {
        shared->slot_count--;
    }
}

static uint64_t fingerprint(const struct simulated_configuration *configuration) {
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    const unsigned char *byte = (const unsigned char *)configuration->device;
    for (size_t i = 0; i < configuration->device_count * sizeof *configuration->device; i++) {
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

/* Mutex held. */
static int initialise(struct simulated_state *state) {
    struct shared_state *shared = state->shared;
    uint64_t wanted = fingerprint(&state->configuration);
    if (shared->magic == SIMULATED_MAGIC && shared->fingerprint == wanted) return 0;
    if (shared->magic == SIMULATED_MAGIC) {
        for (uint32_t k = 0; k < shared->slot_count; k++) {
            pid_t pid;
            if (shared->slot[k].phase == SLOT_HELD && find_holder(state, k, &pid)) {
                fprintf(stderr, "simulated GPU: %s/state is in use with other devices\n",
                        state->configuration.directory);
                return -EBUSY;
            }
        }
    }
    shared->magic = 0;
    atomic_thread_fence(memory_order_release);
    uint32_t slots = shared->slot_count < SIMULATED_SLOTS ? shared->slot_count : SIMULATED_SLOTS;
    memset(shared->slot, 0, slots * sizeof *shared->slot);
    memset(shared->used, 0, sizeof shared->used);
    memset(shared->engine, 0, sizeof shared->engine);
    shared->export_count = 0;
    shared->slot_count = 0;
    shared->cursor = 0;
    atomic_store(&shared->changing, 0);
    shared->fingerprint = wanted;
    atomic_thread_fence(memory_order_release);
    shared->magic = SIMULATED_MAGIC;
    return 0;
}

int state_open(struct simulated_state *state) {
    int error = simulated_configuration_read(&state->configuration);
    if (error != 0) return error;
    char path[SIMULATED_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/state", state->configuration.directory);
    state->slot = SIMULATED_NO_SLOT;
    void *mapping = NULL;
    state->descriptor = open_locked(path, sizeof *state->shared, &mapping);
    if (state->descriptor < 0) return state->descriptor;
    state->shared = mapping;
    error = initialise(state);
    unlock_mutex(state->descriptor);
    if (error == 0) {
        snprintf(path, sizeof path, "%s/devices", state->configuration.directory);
        state->references = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (error != 0) state->descriptor = -1; /* not closed: it would drop the locks of the other library */
    return error;
}

/* Never closed by us: what the process holds stays as long as a copy of it is open. */
static int open_control(const struct simulated_state *state, uint32_t k) {
    char path[SIMULATED_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/devices", state->configuration.directory);
    int descriptor = open_holding_byte(path, control_byte(k));
    return descriptor < 0 ? descriptor : 0;
}

int state_claim_slot(struct simulated_state *state) {
    int error = -EAGAIN;
    state_lock(state);
    sweep(state, SOME_SLOTS);
    if (state->shared->slot_count == SIMULATED_SLOTS) sweep(state, ALL_SLOTS);
    for (uint32_t k = 0; k < SIMULATED_SLOTS; k++) {
        struct shared_slot *slot = &state->shared->slot[k];
        if (k < state->shared->slot_count && slot->phase != SLOT_FREE) continue;
        /* Lock first: killed before the phase is written, the process leaves a free slot. */
        error = hold_slot(state->descriptor, k);
        if (error != 0) continue;
        error = open_control(state, k);
        if (error != 0) break;
        struct process_identity own = process_identity();
        slot->pid = own.pid;
        slot->start_time = own.start_time;
        slot->pid_namespace = own.pid_namespace;
        slot->outer_namespace = slot->outer_pid = 0;
        memset(slot->unlisted, 0, sizeof slot->unlisted);
        memset(slot->saved, 0, sizeof slot->saved);
        atomic_store(&slot->checkpoint, 0);
        atomic_store(&slot->busy_until, 0);
        if (k >= state->shared->slot_count) state->shared->slot_count = k + 1;
        slot->phase = SLOT_HELD;
        state->slot = k;
        break;
    }
    state_unlock(state);
    return error;
}

bool state_take(struct simulated_state *state, unsigned device, uint64_t size) {
    uint64_t total = state->configuration.device[device].total;
    struct shared_state *shared = state->shared;
    struct shared_slot *slot = &shared->slot[state->slot];
    if (size > total) return false;
    state_lock(state);
    if (shared->used[device] > total - size) sweep(state, ALL_SLOTS);
    bool fits = shared->used[device] <= total - size;
    if (fits) change(state, slot, device, slot->used[device] + size);
    state_unlock(state);
    return fits;
}

void state_give(struct simulated_state *state, unsigned device, uint64_t size) {
    struct shared_slot *slot = &state->shared->slot[state->slot];
    state_lock(state);
    change(state, slot, device, slot->used[device] - size);
    state_unlock(state);
}

void state_unlist(struct simulated_state *state, unsigned device, int64_t size) {
    state_lock(state);
    state->shared->slot[state->slot].unlisted[device] += (uint64_t)size;
    state_unlock(state);
}

uint64_t state_free(struct simulated_state *state, unsigned device) {
    state_lock(state);
    sweep(state, SOME_SLOTS);
    uint64_t used = state->shared->used[device];
    state_unlock(state);
    return state->configuration.device[device].total - used;
}

/* The pid of the slot's process here, also if it has died and its memory is kept; 0 if it is not seen from
 * here. A driver keeps the process itself, which has its pid in each namespace also when it is dead; this
 * keeps the one in a namespace from which it was asked for while it lived. Mutex held. */
static pid_t known_pid(struct simulated_state *state, uint32_t k) {
    struct shared_slot *slot = &state->shared->slot[k];
    uint64_t asker = process_identity().pid_namespace;
    if (slot->pid_namespace == asker) return (pid_t)slot->pid;
    if (slot->outer_namespace != asker || slot->outer_pid == 0) {
        pid_t pid;
        if (!find_holder(state, k, &pid) || pid == 0) return 0;
        slot->outer_namespace = asker;
        slot->outer_pid = (uint32_t)pid;
    }
    return (pid_t)slot->outer_pid;
}

unsigned state_processes(struct simulated_state *state, unsigned device, struct simulated_process *row,
                         unsigned capacity) {
    unsigned count = 0;
    state_lock(state);
    sweep(state, SOME_SLOTS);
    for (uint32_t k = 0; k < state->shared->slot_count; k++) {
        const struct shared_slot *slot = &state->shared->slot[k];
        if (slot->phase != SLOT_HELD || slot->used[device] <= slot->unlisted[device]) continue;
        pid_t pid = known_pid(state, k);
        if (pid <= 0) continue;
        uint64_t used = slot->used[device] - slot->unlisted[device];
        unsigned same = 0; /* a dead one whose pid another has by now: a card adds what both hold */
        while (same < count && same < capacity && row[same].pid != pid) same++;
        if (same < count && same < capacity) {
            row[same].used += used;
            continue;
        }
        if (count < capacity) row[count] = (struct simulated_process){.pid = pid, .used = used};
        count++;
    }
    state_unlock(state);
    return count;
}

void state_abandon(struct simulated_state *state) {
    /* Closing drops this process's record locks, and a forked child has none; the parent's stay. It must not
     * keep the description of the mutex alive, which it would hold if the parent died in the middle. */
    if (state->descriptor >= 0) close(state->descriptor);
    state->descriptor = -1;
    state->slot = SIMULATED_NO_SLOT;
}

uint32_t state_slot_of(struct simulated_state *state, pid_t pid) {
    uint32_t found = SIMULATED_NO_SLOT;
    state_lock(state);
    for (uint32_t k = 0; k < state->shared->slot_count && found == SIMULATED_NO_SLOT; k++) {
        pid_t holder;
        if (state->shared->slot[k].phase != SLOT_HELD || !find_holder(state, k, &holder)) continue;
        if (holder == pid) found = k;
    }
    state_unlock(state);
    return found;
}

uint64_t state_save(struct simulated_state *state, struct shared_slot *slot) {
    uint64_t bytes = 0;
    state_lock(state);
    for (unsigned device = 0; device < state->configuration.device_count; device++) {
        bytes += slot->used[device];
        slot->saved[device] += slot->used[device];
        change(state, slot, device, 0);
    }
    state_unlock(state);
    return bytes;
}

bool state_restore(struct simulated_state *state, struct shared_slot *slot, uint64_t *bytes) {
    bool fits = true;
    *bytes = 0;
    state_lock(state);
    sweep(state, ALL_SLOTS);
    for (unsigned device = 0; device < state->configuration.device_count; device++) {
        uint64_t room = state->configuration.device[device].total - state->shared->used[device];
        fits = fits && slot->saved[device] <= room;
    }
    for (unsigned device = 0; fits && device < state->configuration.device_count; device++) {
        *bytes += slot->saved[device];
        change(state, slot, device, slot->used[device] + slot->saved[device]);
        slot->saved[device] = 0;
    }
    state_unlock(state);
    return fits;
}
