/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and pools, as the rest of the simulated driver sees them. driver.mutex held, unless it says
 * otherwise.
 */
#ifndef SIMULATED_POOL_H
#define SIMULATED_POOL_H

#include "libcuda/context/stream_api.h"
#include "libcuda/driver.h"
#include "libcuda/handles.h"
#include "libcuda/memory/arena.h"

struct stream {
    struct handle handle;
    struct context *context;
    struct green_context *green; /* that it was made in, or NULL */
    bool blocking;               /* waits for the legacy stream, and that waits for it */
    struct capture *capture;     /* that it takes part in, or NULL */
    struct stream *joined;       /* the next one that takes part, from the capture's first on */
};

/* A stream with its queues; NULL: the device has no room. driver.mutex held. */
struct stream *stream_new(struct context *context);

/* The default stream of the calling thread in the context, made if it is not there; NULL likewise.
 * driver.mutex held. Whether it was found last, with no lock. All of a context that ends. */
struct stream *stream_own(struct context *context);
bool stream_own_is_known(const struct context *context);
void stream_end_own(struct context *context);

/* What the handle names; NULL for the legacy stream, and for none. */
struct stream *stream_named(CUstream handle);

struct pool {
    struct handle handle; /* forgotten once destroyed, though blocks of it may still live */
    struct arena arena;
    uint64_t release_threshold; /* bytes */
    int reuse[3];               /* settings without effect here: a stream never lags behind */
    bool destroyed;
    struct block *blocks;
    int shareable; /* properties->handle_types */
    int queues[8]; /* the other ends of its exported descriptors: references to exported chunks wait there */
    unsigned exported; /* of those */
    struct pool *next; /* in `pools` */
};

/* driver_enter, and finds the context that the stream works in. Returns CUDA_ERROR_INVALID_HANDLE for an
 * unknown stream, or what driver_enter_context says. */
CUresult driver_enter_stream(CUstream handle, struct context **context);

/* The device's pool for cuMemAllocAsync, made when it is first asked for; NULL if the process has no memory.
 */
struct pool *pool_current(CUdevice device);

/* Takes memory from the pool. */
CUresult pool_allocate(struct pool *pool, uint64_t size, CUdeviceptr *address);

/* Ends a block of a pool. */
void pool_free(struct block *block);

/* What was freed in a stream until then is the device's only after a synchronisation with it. `stream`: NULL
 * for all of the device; frees in default streams are over with any. */
struct until {
    const void *stream;
    uint64_t order; /* of the last free that is over */
};
bool until_covers(const struct until *until, const void *stream, uint64_t order);

/* A number for a free that happens now, and so far. */
uint64_t pool_next_order(void);
uint64_t pool_last_order(void);

/* Synchronises: pools give back what is beyond their release threshold, and late memory is freed. */
void pool_synchronise(CUdevice device, struct until until);

/* Frees memory of cuMemAlloc, or of a pool, in the stream. */
CUresult memory_free_late(CUdeviceptr address, const void *stream);
void memory_synchronise(CUdevice device, struct until until);

/* Gives everything unused in the device's pools back to it, whatever their thresholds. */
void pool_reclaim(CUdevice device);

/* The last context of the process on the device ends, and with it everything in its pools. */
void pool_end_all(CUdevice device);

#endif
