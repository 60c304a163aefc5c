/* SPDX-License-Identifier: Apache-2.0
 *
 * libconvgpu-safety.so: the Banker's algorithm over the claims of all holders, for the scheduler through
 * ctypes. scheduler/convgpu/core/memory/bankers.py decides the same in Python, and says what a claim is.
 *
 * A table keeps for each device the needs of its holders in order, so that a walk looks at each need at most
 * once. It is used by one thread. Sizes are bytes below 2 ** 63, and sums of them have 128 bits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef __int128 sum_of_sizes;

struct need {
    int64_t size; /* above 0 */
    uint32_t slot;
};

struct convgpu_claims {
    uint32_t devices;
    uint32_t slots;          /* for so many holders there is room */
    uint32_t *count;         /* by device, the needs there */
    struct need **needs;     /* by device, least first; of equal ones the least slot */
    int64_t *need;           /* by slot and device */
    int64_t *granted;        /* by slot and device */
    uint32_t *lacking;       /* by slot, on how many devices it has a need */
    sum_of_sizes *satisfied; /* by device, the grants of holders without a need: they end whatever is free */
    uint32_t *left;          /* of a walk: by slot, on how many devices its need does not fit yet */
    uint32_t *place;         /* of a walk: by device, how many needs fit */
    sum_of_sizes *work;      /* of a walk: by device, what is free */
};

EXPORTED struct convgpu_claims *convgpu_claims_new(uint32_t devices);
EXPORTED void convgpu_claims_delete(struct convgpu_claims *claims);
EXPORTED int convgpu_claims_put(struct convgpu_claims *claims, uint32_t slot, const int64_t *granted,
                                const int64_t *need);
EXPORTED int convgpu_claims_can_end(struct convgpu_claims *claims, const int64_t *free_sizes,
                                    const int64_t *need, uint32_t device, int64_t size);

struct convgpu_claims *convgpu_claims_new(uint32_t devices) {
    struct convgpu_claims *claims = calloc(1, sizeof *claims);
    if (!claims) return NULL;
    claims->devices = devices;
    claims->count = calloc(devices, sizeof *claims->count);
    claims->needs = calloc(devices, sizeof *claims->needs);
    claims->satisfied = calloc(devices, sizeof *claims->satisfied);
    claims->place = calloc(devices, sizeof *claims->place);
    claims->work = calloc(devices, sizeof *claims->work);
    if (claims->count && claims->needs && claims->satisfied && claims->place && claims->work) return claims;
    convgpu_claims_delete(claims);
    return NULL;
}

void convgpu_claims_delete(struct convgpu_claims *claims) {
    for (uint32_t device = 0; claims->needs && device < claims->devices; device++)
        free(claims->needs[device]);
    free(claims->count);
    free(claims->needs);
    free(claims->need);
    free(claims->granted);
    free(claims->lacking);
    free(claims->satisfied);
    free(claims->left);
    free(claims->place);
    free(claims->work);
    free(claims);
}

/* Returns the array with room for more, which is 0; NULL without memory, and the array stays as it was. */
static void *enlarge(void *array, size_t before, size_t after, size_t size) {
    char *larger = realloc(array, after * size);
    if (larger) memset(larger + before * size, 0, (after - before) * size);
    return larger;
}

#define ENLARGE(array, before, after)                                                                        \
    ((larger = enlarge(array, before, after, sizeof *(array))) ? ((array) = larger, 1) : 0)

static int make_room(struct convgpu_claims *claims, uint32_t slot) {
    void *larger;
    size_t before = claims->slots, devices = claims->devices;
    if (slot < before) return 1;
    size_t after = slot < 32 ? 64 : 2 * (size_t)slot;
    for (size_t device = 0; device < devices; device++)
        if (!ENLARGE(claims->needs[device], before, after)) return 0;
    if (!ENLARGE(claims->need, before * devices, after * devices)) return 0;
    if (!ENLARGE(claims->granted, before * devices, after * devices)) return 0;
    if (!ENLARGE(claims->lacking, before, after) || !ENLARGE(claims->left, before, after)) return 0;
    claims->slots = (uint32_t)after;
    return 1;
}

/* The place of the first need that is not before this one. */
static uint32_t find(const struct convgpu_claims *claims, uint32_t device, int64_t size, uint32_t slot) {
    const struct need *needs = claims->needs[device];
    uint32_t low = 0, high = claims->count[device];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (needs[middle].size < size || (needs[middle].size == size && needs[middle].slot < slot))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void change_need(struct convgpu_claims *claims, uint32_t slot, uint32_t device, int64_t size) {
    int64_t *before = &claims->need[(size_t)slot * claims->devices + device];
    struct need *needs = claims->needs[device];
    uint32_t place;
    if (*before == size) return;
    if (*before) {
        place = find(claims, device, *before, slot);
        claims->count[device]--;
        memmove(needs + place, needs + place + 1, (claims->count[device] - place) * sizeof *needs);
        claims->lacking[slot]--;
    }
    if (size) {
        place = find(claims, device, size, slot);
        memmove(needs + place + 1, needs + place, (claims->count[device] - place) * sizeof *needs);
        needs[place] = (struct need){size, slot};
        claims->count[device]++;
        claims->lacking[slot]++;
    }
    *before = size;
}

static void add_satisfied(struct convgpu_claims *claims, uint32_t slot, int sign) {
    if (claims->lacking[slot]) return;
    for (uint32_t device = 0; device < claims->devices; device++)
        claims->satisfied[device] +=
            sign * (sum_of_sizes)claims->granted[(size_t)slot * claims->devices + device];
}

/* Sets the claim of a holder, by device what it was granted and may still ask for; all 0: it is none any
 * more. Returns 0 if there is no memory for it, and nothing has changed then. */
int convgpu_claims_put(struct convgpu_claims *claims, uint32_t slot, const int64_t *granted,
                       const int64_t *need) {
    if (!make_room(claims, slot)) return 0;
    add_satisfied(claims, slot, -1);
    for (uint32_t device = 0; device < claims->devices; device++) {
        change_need(claims, slot, device, need[device]);
        claims->granted[(size_t)slot * claims->devices + device] = granted[device];
    }
    add_satisfied(claims, slot, 1);
    return 1;
}

static int fits(const struct convgpu_claims *claims, const int64_t *need, uint32_t missing, int64_t size) {
    for (uint32_t device = 0; device < claims->devices; device++)
        if (need[device] && need[device] > claims->work[device] + (device == missing ? size : 0)) return 0;
    return 1;
}

/* Ends the holders whose needs fit on all devices once those on this one do; returns whether any need fits.
 */
static int pass_fitting(struct convgpu_claims *claims, uint32_t device) {
    const struct need *needs = claims->needs[device];
    uint32_t place = claims->place[device], first = place;
    for (; place < claims->count[device] && needs[place].size <= claims->work[device]; place++) {
        uint32_t slot = needs[place].slot;
        if (--claims->left[slot]) continue;
        const int64_t *granted = &claims->granted[(size_t)slot * claims->devices];
        for (uint32_t other = 0; other < claims->devices; other++) claims->work[other] += granted[other];
    }
    claims->place[device] = place;
    return place > first;
}

/* Returns whether a container with this need can end, if need be after all holders that can, while `size`
 * bytes of a device are missing until it ends (claim_table.py has the theorem). */
int convgpu_claims_can_end(struct convgpu_claims *claims, const int64_t *free_sizes, const int64_t *need,
                           uint32_t device, int64_t size) {
    for (uint32_t other = 0; other < claims->devices; other++) {
        claims->work[other] = free_sizes[other] + claims->satisfied[other] - (other == device ? size : 0);
        claims->place[other] = 0;
    }
    if (claims->slots) memcpy(claims->left, claims->lacking, claims->slots * sizeof *claims->left);
    for (int has_changed = 1; has_changed;) {
        if (fits(claims, need, device, size)) return 1;
        has_changed = 0;
        for (uint32_t other = 0; other < claims->devices; other++) has_changed |= pass_fitting(claims, other);
    }
    return 0;
}
