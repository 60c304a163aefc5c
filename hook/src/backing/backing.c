/* SPDX-License-Identifier: Apache-2.0 */
#include "backing/backing.h"

#include "accounting/device.h"
#include "accounting/small_pages.h"
#include "backing/cache.h"
#include "backing/pieces.h"
#include "backing/ranges.h"
#include "exports/descriptors.h"
#include "exports/kept.h"
#include "exports/told.h"
#include "gate/captures.h"
#include "gate/gate.h"
#include "gate/queue.h"
#include "scheduler/account.h"
#include "tables/registry.h"

enum { SMALLEST_CACHE = 64 << 20, PARTS_OF_LIMIT = 100 };

bool backing_takes(uint64_t bytes) {
    return gate_takes_part() && bytes > LARGEST_SMALL;
}

/* Makes all pieces of a range and maps them. On failure nothing is left. */
static CUresult make_pieces(const struct range *range) {
    CUresult result = CUDA_SUCCESS;
    uint64_t made = 0, size;
    for (uint32_t index = 0; result == CUDA_SUCCESS && index < range_pieces(range); index++) {
        uint64_t address = range_piece(range, index, &size);
        result = pieces_make(range->ordinal, address, size);
        if (result == CUDA_SUCCESS) made += size;
    }
    if (result == CUDA_SUCCESS) result = pieces_open(range->ordinal, range->address, range->size);
    if (result != CUDA_SUCCESS && made > 0) pieces_end(range->address, made);
    return result;
}

static CUresult enter_range(const struct range *range) {
    ranges_lock();
    bool entered = ranges_insert(range);
    ranges_unlock();
    if (entered) return CUDA_SUCCESS;
    pieces_end(range->address, range->size);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A charge_attempt. The gate is passed around the driver's calls, so that a stop does not come between. */
static CUresult attempt(void *arguments) {
    struct range *range = arguments;
    if (!gate_enter_memory()) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = pieces_reserve(range->size, &range->address);
    if (result == CUDA_SUCCESS) {
        result = make_pieces(range);
        if (result == CUDA_SUCCESS) result = enter_range(range);
        if (result != CUDA_SUCCESS) pieces_unreserve(range->address, range->size);
    }
    gate_leave();
    return result == CUDA_ERROR_NOT_FOUND ? CUDA_ERROR_NOT_SUPPORTED : result;
}

static CUdeviceptr allocate_cached(uint64_t size, uint64_t asked, int device, CUcontext context) {
    if (cache_is_empty()) return 0;
    ranges_lock();
    CUdeviceptr address = cache_take(size, device, context);
    struct range *range = address ? ranges_find(address) : NULL;
    if (range) {
        range->state = RANGE_LIVE;
        range->asked = asked;
        ranges_rename(range);
    }
    ranges_unlock();
    return address;
}

CUresult backing_allocate(struct charge *charge, CUcontext context, uint64_t bytes, CUdeviceptr *address) {
    struct range range = {
        .size = charge_round(bytes), .asked = bytes, .context = context, .device = charge->device};
    CUdeviceptr kept = allocate_cached(range.size, bytes, charge->device, context);
    if (kept) {
        *address = kept;
        return CUDA_SUCCESS;
    }
    charge->movable = true;
    CUresult result = DRIVER(cuCtxGetDevice, &range.ordinal);
    if (result == CUDA_SUCCESS) result = charge_open(charge, range.size);
    if (result == CUDA_SUCCESS) result = charge_make(charge, attempt, &range);
    if (result == CUDA_SUCCESS) *address = range.address;
    charge->movable = result == CUDA_SUCCESS;
    return result;
}

/* Ends a range, whose pieces are on the device or nowhere; the lock is held. Returns bytes for the caller to
 * give back, without the lock. */
static uint64_t end_range(struct range *range) {
    uint64_t size, given = range->name != 0 ? 0 : range->size;
    for (uint32_t index = 0; range->out > 0 && index < range_pieces(range); index++) {
        uint64_t address = range_piece(range, index, &size);
        if (!range_is_out(range, index)) pieces_end(address, size);
    }
    if (range->out == 0) pieces_end(range->address, range->size);
    if (range->name != 0)
        kept_charge(range->name, range->device, 0, range->size);
    else if (range->fixed)
        account_give_fixed((uint32_t)range->device, range->size);
    pieces_unreserve(range->address, range->size);
    ranges_remove(range);
    return given;
}

/* What the cache may hold of the device: nothing while another process's allocation waits. */
static uint64_t cache_bound(int device) {
    if (account_wanted((uint32_t)device)) return 0;
    uint64_t part = account_limit((uint32_t)device) / PARTS_OF_LIMIT;
    return part > SMALLEST_CACHE ? part : SMALLEST_CACHE;
}

/* Keeps a freed range, if there is room; older ones make room. The lock is held; *given is for the caller. */
static bool keep(struct range *range, uint64_t *given) {
    uint64_t bound = cache_bound(range->device), address = range->address;
    int device = range->device;
    if (range->fixed || range->size > bound || !gate_is_open()) return false;
    while (cache_size(device) + range->size > bound) {
        struct range *oldest = ranges_find(cache_take_oldest(device, 0));
        *given += end_range(oldest); /* entries move in the table */
        range = ranges_find(address);
    }
    if (!cache_put(address, range->size, device, range->context)) return false;
    range->state = RANGE_CACHED;
    return true;
}

/* A range that a thread is freeing. The thread waits for the device without a lock. */
struct freeing {
    CUdeviceptr address;
    uint64_t id;
    CUcontext context;
};

/* The range, if it is still this thread's: while it waited, the mover or the end of the context may have
 * ended it, and another thread may have been given its addresses. The lock is held. */
static struct range *find_freed(const struct freeing *freeing) {
    struct range *range = ranges_find(freeing->address);
    return range && range->id == freeing->id ? range : NULL;
}

/* After a free: the range goes into the cache or back to the device, or stays for the mover. */
static void finish(const struct freeing *freeing, bool quiet) {
    uint64_t given = 0;
    int device = 0;
    ranges_lock();
    struct range *range = find_freed(freeing);
    bool stays = range && (!quiet || range->out > 0 || range->moving > 0);
    if (range && quiet) range->quiet = RANGE_QUIET;
    if (range && !stays) {
        device = range->device;
        if (!keep(range, &given)) {
            range = ranges_find(freeing->address);
            given += end_range(range);
        }
    }
    ranges_unlock();
    if (stays)
        queue_wake();
    else if (given > 0)
        headroom_give_movable(device, given);
    if (!cache_is_empty()) queue_wake_idle(); /* to be given back when it gets old */
}

/* Waits for what was submitted in the context, in which the range dies. False: a capture is on its way. */
static bool synchronise(CUcontext context, CUresult *result) {
    CUcontext current = NULL;
    if (!captures_hold()) return false;
    bool pushed = DRIVER(cuCtxGetCurrent, &current) == CUDA_SUCCESS && current != context &&
                  DRIVER(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
    *result = DRIVER(cuCtxSynchronize);
    if (pushed) DRIVER(cuCtxPopCurrent_v2, &current);
    captures_release();
    return true;
}

/* Sets the state of a range that is live. False when there is none. */
static bool set_freed(struct freeing *freeing) {
    ranges_lock();
    struct range *range = ranges_find(freeing->address);
    bool live = range && range->state == RANGE_LIVE;
    if (live) {
        range->state = RANGE_FREED;
        range->quiet = RANGE_LOUD;
        freeing->id = range->id;
        freeing->context = range->context;
    }
    ranges_unlock();
    return live;
}

static void set_live(const struct freeing *freeing) {
    ranges_lock();
    struct range *range = find_freed(freeing);
    if (range) range->state = RANGE_LIVE;
    ranges_unlock();
}

bool backing_free(CUdeviceptr address, CUresult *result) {
    struct freeing freeing = {.address = address};
    CUcontext current;
    int device;
    if (ranges_is_empty() || !backing_has(address)) return false;
    *result = device_current(&current, &device);
    if (*result != CUDA_SUCCESS) return true; /* the driver's own error */
    if (!set_freed(&freeing)) return false;
    bool quiet = synchronise(freeing.context, result);
    if (*result == CUDA_SUCCESS)
        finish(&freeing, quiet);
    else
        set_live(&freeing); /* an error of the device, which every call returns from now on */
    return true;
}

bool backing_has(CUdeviceptr address) {
    if (ranges_is_empty()) return false;
    ranges_lock();
    const struct range *range = ranges_find(address);
    bool live = range && range->state == RANGE_LIVE;
    ranges_unlock();
    return live;
}

void backing_empty_cache(int device, int64_t age) {
    while (!cache_is_empty()) {
        uint64_t size = 0;
        int of = device;
        ranges_lock();
        CUdeviceptr address = cache_take_oldest(device, age);
        struct range *range = address ? ranges_find(address) : NULL;
        if (range) {
            of = range->device;
            size = end_range(range);
        }
        ranges_unlock();
        if (size == 0) return;
        headroom_give_movable(of, size);
    }
}

static void forget_pieces(const struct range *range, backing_forget *forget) {
    uint64_t size;
    for (uint32_t index = 0; range->out > 0 && index < range_pieces(range); index++) {
        uint64_t piece = range_piece(range, index, &size);
        if (range_is_out(range, index)) forget(range->device, piece, size);
    }
}

bool backing_sweep(backing_forget *forget) {
    bool left = false;
    for (uint64_t address = 0; !ranges_is_empty();) {
        uint64_t size = 0;
        int device = 0;
        ranges_lock();
        struct range *range = ranges_after(address);
        if (range) {
            bool ends = range->state == RANGE_FREED && range->moving == 0 && range->quiet == RANGE_QUIET;
            left = left || (range->state == RANGE_FREED && !ends);
            address = range->address;
            device = range->device;
            if (ends) {
                forget_pieces(range, forget);
                size = end_range(range);
            }
        }
        ranges_unlock();
        if (!range) break;
        if (size > 0) headroom_give_movable(device, size);
    }
    return left;
}

/* Moves the freed ranges on from one step to the next. */
static bool move_on(enum range_quiet from, enum range_quiet to) {
    bool any = false;
    ranges_lock();
    for (struct range *range = ranges_after(0); range; range = ranges_after(range->address)) {
        if (range->state != RANGE_FREED || range->quiet != from) continue;
        range->quiet = to;
        any = true;
    }
    ranges_unlock();
    return any;
}

bool backing_ask(void) {
    return move_on(RANGE_LOUD, RANGE_ASKED);
}

bool backing_quieten(void) {
    return move_on(RANGE_ASKED, RANGE_QUIET);
}

static void set_dying(CUcontext context, bool dying) {
    if (ranges_is_empty()) return;
    ranges_lock();
    for (struct range *range = ranges_after(0); range; range = ranges_after(range->address))
        if (range->context == context) range->dying = dying;
    ranges_unlock();
}

static void backing_mark(CUcontext context) {
    set_dying(context, true);
}

static void backing_unmark(CUcontext context) {
    set_dying(context, false);
}

/* Ends the first range behind the address that dies with the context. Pieces that are out or on their way are
 * the mover's to end: a thread that is freeing the range does not find it by its id any more. Returns its
 * device, or -1 when there is none. */
static int drop_after(uint64_t *address, CUcontext context, uint64_t *size) {
    struct range *range = ranges_after(*address);
    while (range && (range->context != context || !range->dying)) range = ranges_after(range->address);
    if (!range) return -1;
    int device = range->device;
    *address = range->address;
    *size = 0;
    cache_forget(range->address);
    range->state = RANGE_FREED;
    range->quiet = RANGE_QUIET;
    ranges_rename(range);
    if (range->out > 0 || range->moving > 0) return device;
    *size = end_range(range);
    return device;
}

/* The driver frees what it has allocated in a context, and no mappings. */
static void backing_drop(CUcontext context, uint64_t *sizes) {
    uint64_t address = 0, size;
    bool left = false;
    (void)sizes; /* what is given back there is fixed memory */
    if (ranges_is_empty()) return;
    for (int device = 0; device >= 0;) {
        ranges_lock();
        device = drop_after(&address, context, &size);
        ranges_unlock();
        if (device < 0) break;
        left = left || size == 0;
        if (size > 0) headroom_give_movable(device, size);
    }
    if (left) queue_wake();
}

static void backing_reclaim(int device, bool trim) {
    (void)trim;
    backing_empty_cache(device, 0);
}

static bool backing_mark_shared(CUdeviceptr address, size_t size) {
    (void)size;
    if (ranges_is_empty()) return false;
    ranges_lock();
    struct range *range = ranges_at(address);
    if (range && range->fixed && range->name == 0) range->name = descriptors_new_name();
    ranges_unlock();
    return range != NULL;
}

static bool backing_share(CUdeviceptr address, size_t size, int descriptor) {
    (void)size;
    if (ranges_is_empty()) return true;
    ranges_lock();
    const struct range *range = ranges_at(address);
    struct allocation entry = {0};
    if (range)
        entry = (struct allocation){
            .address = range->name, .size = range->size, .device = (uint64_t)range->device & 63};
    ranges_unlock();
    return entry.address == 0 || told_watch(entry.address, (int)entry.device, entry.size, descriptor);
}

static void backing_enumerate(registry_visit *visit, void *argument) {
    ranges_lock();
    for (struct range *range = ranges_after(0); range; range = ranges_after(range->address))
        visit(&(struct live_allocation){.kind = range->state == RANGE_CACHED ? "cached memory" : "memory",
                                        .device = range->device,
                                        .address = range->address,
                                        .size = range->size},
              argument);
    ranges_unlock();
}
REGISTER_FAMILY(backing, .reclaim = backing_reclaim, .mark = backing_mark, .unmark = backing_unmark,
                .drop = backing_drop, .mark_shared = backing_mark_shared, .share = backing_share,
                .enumerate = backing_enumerate);
