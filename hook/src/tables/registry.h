/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of call families. A family is a file of calls/ that keeps records of its own: it registers here
 * what it can do with them, so that neither a new family nor a caller of this file edits another family.
 * Every member may be NULL. The order of the families is not defined.
 */
#ifndef CONVGPU_REGISTRY_H
#define CONVGPU_REGISTRY_H

#include "tables/driver.h"

#define REGISTRY_CONTEXT "context" /* the kind of a context */

/* Something of the driver's that is charged. `kind` says what it is, for people. */
struct live_allocation {
    const char *kind;
    int device;       /* number of account.h */
    uint64_t address; /* or the handle */
    uint64_t size;    /* bytes, as they are charged; of a small allocation, what it takes of its pages */
    const char *call; /* that made it; NULL: as `kind` says */
    uint32_t made;    /* seconds of coarse_clock.h; 0: not known */
};

/* Called for each allocation, with a lock of the family held: it must call nothing of this library. */
typedef void registry_visit(const struct live_allocation *allocation, void *argument);

/* `visit` with its argument, as one argument for a walk through a family's own table. */
struct registry_visitor {
    registry_visit *visit;
    void *argument;
};

struct call_family {
    /* Empties the records and renews the locks, in the child of a fork, where no other thread is. */
    void (*reset)(void);

    /* Gives back what the driver has given up on the device since the last time. With `trim`, lets the driver
     * give up first what the program does not use. Called with no lock held. */
    void (*reclaim)(int device, bool trim);

    /* A synchronisation has ended, with the stream or (`all`) with everything: gives back what that freed. */
    void (*synchronised)(CUstream stream, bool all);

    /* Around a call that destroys `context`: before it; after it failed; after it succeeded, when the
     * context's records go. `drop` adds the bytes to be given back to sizes[device], or gives them back
     * itself. */
    void (*mark)(CUcontext context);
    void (*unmark)(CUcontext context);
    void (*drop)(CUcontext context, uint64_t *sizes);

    /* Bytes that are charged on the device, not as contexts', and that the driver has not taken yet. Takes a
     * lock of the family's own, under which nothing is measured. */
    uint64_t (*untaken)(int device);

    /* Gives back what nobody has a descriptor of any more. Called with no lock held. */
    void (*unkeep)(void);

    /* Somebody may have a descriptor soon by which what lies at the addresses is kept: whether the family
     * knows when it is freed. Then somebody has it. False: it cannot be watched. */
    bool (*mark_shared)(CUdeviceptr address, size_t size);
    bool (*share)(CUdeviceptr address, size_t size, int descriptor);

    /* Shows every live allocation to `visit`. */
    void (*enumerate)(registry_visit *visit, void *argument);
};

/* REGISTER_FAMILY(pool, .reset = pool_reset, ...); at the end of the family's file. */
#define REGISTER_FAMILY(name, ...)                                                                           \
    static const struct call_family name##_family = {__VA_ARGS__};                                           \
    static const struct call_family *const name##_registered                                                 \
        __attribute__((section("convgpu_families"), used)) = &name##_family

/* Each calls that member of all families; contracts as above. They take no lock themselves. */
void registry_reclaim(int device, bool trim);
void registry_synchronised(CUstream stream, bool all);
void registry_mark(CUcontext context);
void registry_unmark(CUcontext context);
void registry_drop(CUcontext context, uint64_t *sizes);
uint64_t registry_untaken(int device);
void registry_unkeep(void);
bool registry_mark_shared(CUdeviceptr address, size_t size);
bool registry_share(CUdeviceptr address, size_t size, int descriptor);
void registry_enumerate(registry_visit *visit, void *argument);

#endif
