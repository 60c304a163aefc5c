/* SPDX-License-Identifier: Apache-2.0
 *
 * What the simulated driver keeps for its process. One mutex (driver.mutex) guards all of it, and is taken
 * before the lock of the shared state, never after.
 */
#ifndef SIMULATED_DRIVER_H
#define SIMULATED_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "libcuda/cuda_api.h"
#include "libcuda/memory/arena.h"
#include "simulated/state.h"

#define INSTANCE_BIT 0x80 /* of the first byte: the UUID of a card's instance differs in it */
#define MEMORY_PITCH 512u /* bytes: rows of pitched memory are multiples */

/* What a context has for objects of a kind; it grows in steps, and is kept until the context ends. */
struct store {
    uint64_t used, size; /* bytes */
};

struct context {
    struct context *next; /* in driver.contexts; never removed, so that a stale handle is recognised */
    bool alive;           /* takes context_size bytes of the device */
    bool primary;
    CUresult error; /* of work that failed: from then on the answer of every call */
    CUdevice device;
    unsigned references; /* of a primary context, survives a reset; of another one, attachments */
    unsigned flags;
    struct block *blocks;  /* freed with the context */
    struct arena slabs;    /* where its small blocks lie */
    struct block *imports; /* of other processes' memory; closed with the context */
    struct module *modules;
    uint64_t grown;  /* bytes of the device for stacks beyond those of the first limit, heap, printf and
                        the driver's code */
    uint64_t stack;  /* bytes that each thread has; 0: as at first */
    size_t limit[5]; /* 0: as at first */
    bool heap_taken, printf_taken;
    unsigned calls;              /* what it has of the driver's code (module.h) */
    uint64_t pending;            /* bytes for launches of kernels by kernels */
    struct store graphs, queues; /* of executable graphs, and of streams */
    struct own_stream *own;      /* default streams of threads */
    uint64_t life;               /* another number each time that it begins */
};

enum driver_phase {
    DRIVER_UNINITIALISED,
    DRIVER_READY,
    DRIVER_FORKED, /* a child of a process that had called cuInit: the real driver does not work there either
                    */
};

struct driver {
    pthread_mutex_t mutex;
    _Atomic enum driver_phase phase;
    struct simulated_state state;
    int device_count;                    /* visible ones */
    bool instance;                       /* the only one is an instance (MIG), with a UUID of its own */
    unsigned row[SIMULATED_DEVICES_MAX]; /* of `devices`, by CUdevice */
    struct context primary[SIMULATED_DEVICES_MAX];
    struct context *contexts; /* made by cuCtxCreate */
    struct blocks blocks;
};

extern struct driver driver;

/* Tells a test that kills processes at the steps of a move (tests/storm) of a call that begins. */
void driver_step(const char *call);

/* Takes driver.mutex, unless the driver is not initialised: then returns CUDA_ERROR_NOT_INITIALIZED. */
CUresult driver_enter(void);
#define driver_enter() (driver_step(__func__), driver_enter())

/* driver_enter, and refuses a device that is not visible (CUDA_ERROR_INVALID_DEVICE). */
CUresult driver_enter_device(CUdevice device);

/* driver_enter, and finds the calling thread's context. Returns CUDA_ERROR_INVALID_CONTEXT if it has none,
 * CUDA_ERROR_CONTEXT_IS_DESTROYED if that one has ended. */
CUresult driver_enter_context(struct context **context);
#define driver_enter_context(context) (driver_step(__func__), driver_enter_context(context))

/* Whether calls wait just now, for a checkpoint of the process. */
bool driver_is_stopped(void);
void driver_wait_while_stopped(void);

/* Releases driver.mutex and hands the result through. */
CUresult driver_leave(CUresult result);

/* Chooses driver.row by CUDA_VISIBLE_DEVICES (`list`; NULL: all). "MIG-" and a UUID is the instance of a
 * card. Returns CUDA_ERROR_NO_DEVICE if that leaves none, CUDA_ERROR_INVALID_DEVICE if a device is named
 * twice. */
CUresult driver_choose_devices(const char *list);

/* The primary context of the green one that the handle names; the handle itself if it names none.
 * driver.mutex held. */
struct context *green_primary(const struct context *handle);

/* The context on top of this thread's stack, or NULL; and whether it is there by the handle of a green one,
 * which has no default streams of threads. */
struct context *context_current(void);
bool context_is_green(void);

/* Takes or gives device memory for the thread's process. driver.mutex held. */
bool device_take(CUdevice device, uint64_t size);
void device_give(CUdevice device, uint64_t size);

/* The address range of a block of legacy.c may come again. driver.mutex held. */
void legacy_give_range(struct block *range);

/* Waits as long as a refusal takes (the setting oom_us). driver.mutex not held. */
CUresult refuse_memory(void);

/* Takes from a store, which grows by what lacks, and gives back to it. driver.mutex held. */
bool store_take(struct context *context, struct store *store, uint64_t size);
void store_give(struct store *store, uint64_t size);

/* Frees the allocation at the address, or nothing at 0. Returns CUDA_ERROR_INVALID_VALUE if there is none.
 * driver.mutex held. */
CUresult memory_free(CUdeviceptr address);

/* Frees all blocks of the context, and closes its imports. driver.mutex held. */
void memory_free_all(struct context *context);

/* Ends all arrays of the context. driver.mutex held. */
void array_end_all(const struct context *context);

#endif
