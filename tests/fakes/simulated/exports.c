/* SPDX-License-Identifier: Apache-2.0 */
#include "simulated/exports.h"

#include <stdio.h>
#include <unistd.h>

#include "simulated/lock.h"

static bool referred_to(const struct simulated_state *state, uint32_t row) {
    return byte_is_held(state->references, row);
}

static void begin_change(struct shared_state *shared) {
    atomic_store_explicit(&shared->changing, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void end_change(struct shared_state *shared) {
    atomic_store_explicit(&shared->changing, 0, memory_order_release);
}

/* From its maker's slot to itself; the device's sum stays. Mutex held. */
static void orphan(struct shared_state *shared, struct shared_export *export) {
    begin_change(shared);
    shared->slot[export->slot].used[export->device] -= export->size;
    export->phase = EXPORT_ORPHAN;
    end_change(shared);
}

/* Mutex held. */
static void end_orphan(struct shared_state *shared, struct shared_export *export) {
    begin_change(shared);
    shared->used[export->device] -= export->size;
    export->phase = EXPORT_FREE;
    end_change(shared);
}

uint32_t export_enter(struct simulated_state *state, unsigned device, uint64_t size, int *reference) {
    struct shared_state *shared = state->shared;
    char path[SIMULATED_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/devices", state->configuration.directory);
    state_lock(state);
    uint32_t row = 0;
    while (row < shared->export_count && shared->export[row].phase != EXPORT_FREE) row++;
    *reference = row < SIMULATED_EXPORTS ? open_holding_byte(path, row) : -1;
    if (*reference >= 0) {
        struct shared_export entered = {
            .phase = EXPORT_HELD, .slot = state->slot, .device = device, .size = size};
        shared->export[row] = entered;
        if (row == shared->export_count) shared->export_count++;
    }
    state_unlock(state);
    return *reference >= 0 ? row : NOT_EXPORTED;
}

void export_leave(struct simulated_state *state, uint32_t row) {
    struct shared_export *export = &state->shared->export[row];
    state_lock(state);
    orphan(state->shared, export);
    if (!referred_to(state, row)) end_orphan(state->shared, export);
    state_unlock(state);
}

void export_park(struct simulated_state *state, uint32_t row) {
    state_lock(state);
    orphan(state->shared, &state->shared->export[row]);
    state_unlock(state);
}

void export_return(struct simulated_state *state, uint32_t row) {
    struct shared_export *export = &state->shared->export[row];
    state_lock(state);
    begin_change(state->shared);
    state->shared->slot[export->slot].used[export->device] += export->size;
    export->phase = EXPORT_HELD;
    end_change(state->shared);
    state_unlock(state);
}

void export_closed(struct simulated_state *state, uint32_t row) {
    struct shared_export *export = &state->shared->export[row];
    state_lock(state);
    if (export->phase == EXPORT_ORPHAN && !referred_to(state, row)) end_orphan(state->shared, export);
    state_unlock(state);
}

void exports_sweep(struct simulated_state *state) {
    struct shared_state *shared = state->shared;
    for (uint32_t row = 0; row < shared->export_count; row++) {
        struct shared_export *export = &shared->export[row];
        if (export->phase == EXPORT_ORPHAN && !referred_to(state, row)) end_orphan(shared, export);
    }
    while (shared->export_count > 0 && shared->export[shared->export_count - 1].phase == EXPORT_FREE) {
        shared->export_count--;
    }
}

void exports_of_dead(struct simulated_state *state, uint32_t slot) {
    struct shared_state *shared = state->shared;
    for (uint32_t row = 0; row < shared->export_count; row++) {
        struct shared_export *export = &shared->export[row];
        if (export->phase != EXPORT_HELD || export->slot != slot) continue;
        if (referred_to(state, row)) {
            orphan(shared, export);
        } else {
            export->phase = EXPORT_FREE; /* and settles with the rest of the slot */
        }
    }
}

uint64_t exports_used(const struct shared_state *shared, unsigned device) {
    uint64_t used = 0;
    for (uint32_t row = 0; row < shared->export_count; row++) {
        const struct shared_export *export = &shared->export[row];
        if (export->phase == EXPORT_ORPHAN && export->device == device) used += export->size;
    }
    return used;
}

bool exports_held(struct simulated_state *state, uint32_t slot) {
    bool held = false;
    state_lock(state);
    for (uint32_t row = 0; row < state->shared->export_count; row++) {
        const struct shared_export *export = &state->shared->export[row];
        held = held || (export->phase == EXPORT_HELD && export->slot == slot);
    }
    state_unlock(state);
    return held;
}
