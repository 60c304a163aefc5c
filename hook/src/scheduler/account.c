/* SPDX-License-Identifier: Apache-2.0
 *
 * Why usage is never under-counted when the page is swapped.
 *
 * `swap` is taken by take, give and accept, each of which changes the slot and `used` together, and by
 * whoever exchanges the page or reads `used` for a HELLO. So at those moments no thread stands between the
 * two changes, and this always holds:
 *
 *     lease = used + headroom of the page in use        (the lease as this process knows it)
 *
 * 1. The connection ends (account_leave): the lease is gone. The page in use becomes `offline`, a private one
 *    whose slots are 0, so lease = used. No take succeeds for bytes that nobody leased to us.
 * 2. While away, gives add to the offline slot and takes take from it: `used` can fall and rise again, but
 * not above what it was at step 1 or 3.
 * 3. HELLO (account_hold): the slots are set to 0 and `held` = used, so again lease = held = used. This is
 * what the scheduler will count for us. Frees and re-uses between HELLO and WELCOME go through the offline
 * slot as in 2, so held = used + offline headroom.
 * 4. WELCOME (account_welcome): the offline headroom is added to the new page's slot, which starts at 0, so
 *    the scheduler's lease (held) = used + headroom, exactly.
 *
 * A try that ends between 3 and 4 is repeated from 3. A take that succeeded on the old page before step 1 is
 * in `used`, hence in `held`, even if the scheduler had counted the old lease as returned by then.
 *
 * Of fixed memory only what is used is known across connections: STATE tells it, and what was free of it in
 * the old slot is gone.
 *
 * `swap` is a leaf: nothing is called while it is taken. The slot alone is shared with the scheduler, so it
 * is changed by atomic operations; `used` and `due` are written under `swap` only.
 */
#include "scheduler/account.h"

#include "base/fork_reset.h"
#include "base/spinlock.h"

#include <string.h>
#include <sys/mman.h>

struct device_account {
    uint8_t uuid[CONVGPU_UUID_SIZE];
    _Atomic int row;
    _Atomic uint64_t limit;
    _Atomic uint64_t context_size;
    _Alignas(64) _Atomic uint64_t used;
    _Atomic uint64_t due; /* beyond so much use the contexts are to be measured; 0: never */
    _Atomic uint64_t taken;
    _Atomic uint64_t contexts;
    _Atomic uint64_t fixed; /* of a process that takes part: of `used`, what cannot leave */
};

enum { SMALLEST_STRIDE = 2 << 20 };

static struct spinlock swap;
static struct device_account accounts[CONVGPU_MAX_DEVICES];
static _Atomic uint32_t account_count;
static uint32_t chosen_count; /* rows of the last WELCOME if they were chosen, else 0; guarded by `swap` */
static struct convgpu_page offline;
static struct convgpu_page *page = &offline; /* guarded by `swap` */
static _Atomic bool elastic, unified;        /* the first page said so */
static bool confined;                        /* likewise, and CUDA began with it; guarded by `swap` */
static bool welcomed_before;                 /* guarded by `swap` */
static _Atomic uint32_t welcomes;            /* connections so far whose scheduler wants to hear of exports */
static _Atomic bool hears;                   /* this one does */

static uint64_t load(const _Atomic uint64_t *number) {
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void store(_Atomic uint64_t *number, uint64_t value) {
    atomic_store_explicit(number, value, memory_order_relaxed);
}

/* The slot of a device in the page in use; `swap` is taken. Offline slots stand at the device's number. */
static struct convgpu_slot *slot_of(uint32_t device) {
    int row = page == &offline ? (int)device : accounts[device].row;
    return row < 0 ? NULL : &page->device[row];
}

int account_find(const uint8_t *uuid) {
    for (uint32_t device = 0; device < account_count; device++)
        if (memcmp(accounts[device].uuid, uuid, CONVGPU_UUID_SIZE) == 0) return (int)device;
    return -1;
}

uint32_t account_devices(void) {
    return account_count;
}

int account_row(uint32_t device) {
    return accounts[device].row;
}

bool account_chosen(struct account_chosen *devices) {
    spinlock_lock(&swap);
    uint32_t count = chosen_count;
    for (uint32_t device = 0; count > 0 && device < account_count; device++)
        if (accounts[device].row >= 0)
            memcpy(devices->uuid[accounts[device].row], accounts[device].uuid, CONVGPU_UUID_SIZE);
    spinlock_unlock(&swap);
    if (count > 0) devices->count = count;
    return count > 0;
}

const uint8_t *account_uuid(uint32_t device) {
    return accounts[device].uuid;
}

uint64_t account_limit(uint32_t device) {
    bool alone;
    return account_published_limit(device, &alone);
}

/* Offline slots carry no limit: then it is the last WELCOME's, and no other process is known of. */
uint64_t account_published_limit(uint32_t device, bool *alone) {
    spinlock_lock(&swap);
    struct convgpu_slot *slot = slot_of(device);
    uint64_t limit = slot ? atomic_load_explicit(&slot->limit, memory_order_relaxed) : 0;
    *alone = slot && atomic_load_explicit(&slot->alone, memory_order_relaxed) != 0;
    spinlock_unlock(&swap);
    return limit > 0 ? limit : accounts[device].limit;
}

uint64_t account_context_size(uint32_t device) {
    return accounts[device].context_size;
}

uint64_t account_used(uint32_t device) {
    return accounts[device].used;
}

uint64_t account_contexts(uint32_t device) {
    return accounts[device].contexts;
}

/* `swap` is taken, so that one thread at a time changes a counter. */
#define ADD(counter, size)                                                                                   \
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + (size),             \
                          memory_order_relaxed)

bool account_take(uint32_t device, uint64_t size, bool *traced) {
    struct device_account *account = &accounts[device];
    spinlock_lock(&swap);
    struct convgpu_slot *slot = slot_of(device);
    bool taken = slot && convgpu_slot_take(slot, size);
    if (traced) *traced = taken && convgpu_slot_traced(slot);
    if (taken) {
        ADD(&account->used, size);
        ADD(&account->taken, size);
    }
    spinlock_unlock(&swap);
    return taken;
}

bool account_take_fixed(uint32_t device, uint64_t size) {
    if (!atomic_load_explicit(&elastic, memory_order_relaxed)) return true;
    spinlock_lock(&swap);
    struct convgpu_slot *slot = slot_of(device);
    bool taken = slot && convgpu_slot_take_fixed(slot, size);
    if (taken) ADD(&accounts[device].fixed, size);
    spinlock_unlock(&swap);
    return taken;
}

void account_give_fixed(uint32_t device, uint64_t size) {
    if (!atomic_load_explicit(&elastic, memory_order_relaxed)) return;
    spinlock_lock(&swap);
    struct convgpu_slot *slot = slot_of(device);
    ADD(&accounts[device].fixed, 0 - size);
    if (slot) atomic_fetch_add(&slot->fixed, size);
    spinlock_unlock(&swap);
}

void account_accept_fixed(uint32_t device, uint64_t size) {
    spinlock_lock(&swap);
    ADD(&accounts[device].fixed, size);
    spinlock_unlock(&swap);
}

uint64_t account_fixed(uint32_t device) {
    return load(&accounts[device].fixed);
}

bool account_wanted(uint32_t device) {
    spinlock_lock(&swap);
    struct convgpu_slot *slot = slot_of(device);
    bool wanted = slot && atomic_load_explicit(&slot->notify_on_free, memory_order_relaxed) != 0;
    spinlock_unlock(&swap);
    return wanted;
}

/* Half of what can be had without asking, so that few measurements come before the last bytes. */
static uint64_t halfway(uint64_t used, uint64_t headroom) {
    return used + (headroom / 2 > SMALLEST_STRIDE ? headroom / 2 : SMALLEST_STRIDE);
}

bool account_give(uint32_t device, uint64_t size) {
    struct device_account *account = &accounts[device];
    if (size == 0) return false;
    spinlock_lock(&swap);
    struct convgpu_slot *slot = slot_of(device);
    uint64_t used = load(&account->used) - size, due = load(&account->due);
    store(&account->used, used);
    bool armed = slot && convgpu_slot_give(slot, size);
    if (due > 0 && slot) {
        uint64_t next = halfway(used, convgpu_slot_read(slot));
        if (next < due) store(&account->due, next);
    }
    spinlock_unlock(&swap);
    return armed;
}

void account_accept(uint32_t device, uint64_t size) {
    spinlock_lock(&swap);
    ADD(&accounts[device].used, size);
    ADD(&accounts[device].taken, size);
    spinlock_unlock(&swap);
}

uint64_t account_taken(uint32_t device) {
    return load(&accounts[device].taken);
}

void account_watch(uint32_t device, enum account_mark mark) {
    struct device_account *account = &accounts[device];
    spinlock_lock(&swap);
    struct convgpu_slot *slot = slot_of(device);
    uint64_t used = load(&account->used), due = 0;
    if (mark == ACCOUNT_NOW) due = 1;
    if (mark == ACCOUNT_HALFWAY) due = halfway(used, slot ? convgpu_slot_read(slot) : 0);
    store(&account->due, due);
    spinlock_unlock(&swap);
}

bool account_watched(uint32_t device) {
    return load(&accounts[device].due) > 0;
}

bool account_due(uint32_t device, uint64_t size) {
    uint64_t due = load(&accounts[device].due), sum;
    bool wraps = __builtin_add_overflow(load(&accounts[device].used), size, &sum);
    return due > 0 && (wraps || sum > due);
}

void account_add_context(uint32_t device, uint64_t size) {
    accounts[device].contexts += size;
}

void account_remove_context(uint32_t device, uint64_t size) {
    accounts[device].contexts -= size;
}

/* `swap` is taken for writing. */
static void clear_offline(void) {
    for (uint32_t device = 0; device < CONVGPU_MAX_DEVICES; device++)
        (void)convgpu_slot_take_all(&offline.device[device]);
    for (uint32_t device = 0; device < CONVGPU_MAX_DEVICES; device++) offline.device[device].fixed = 0;
}

void account_leave(void) {
    spinlock_lock(&swap);
    struct convgpu_page *left = page;
    page = &offline;
    if (left != &offline) clear_offline();
    spinlock_unlock(&swap);
    if (left != &offline) munmap(left, sizeof *left); /* no reader is left: they read under `swap` */
}

uint32_t account_hold(struct convgpu_held *held) {
    uint32_t rows = 0;
    spinlock_lock(&swap);
    clear_offline();
    for (uint32_t device = 0; device < account_count; device++) {
        if (accounts[device].used == 0) continue;
        memcpy(held[rows].device, accounts[device].uuid, CONVGPU_UUID_SIZE);
        held[rows++].size = accounts[device].used;
    }
    spinlock_unlock(&swap);
    return rows;
}

/* The number of the device of the row, a new one if it was never named. `swap` is taken for writing; there is
 * room. */
static uint32_t account_enter(const struct convgpu_device *rows, uint32_t row) {
    int known = account_find(rows[row].uuid);
    uint32_t device = known < 0 ? account_count : (uint32_t)known;
    memcpy(accounts[device].uuid, rows[row].uuid, CONVGPU_UUID_SIZE);
    accounts[device].limit = rows[row].limit;
    accounts[device].context_size = rows[row].context_size;
    accounts[device].row = (int)row;
    if (known < 0) account_count++;
    return device;
}

static bool has_room(const struct convgpu_device *rows, uint32_t count) {
    uint32_t unknown = 0;
    for (uint32_t row = 0; row < count; row++)
        if (account_find(rows[row].uuid) < 0) unknown++;
    return count <= CONVGPU_MAX_DEVICES && account_count + unknown <= CONVGPU_MAX_DEVICES;
}

bool account_welcome(const struct convgpu_device *rows, uint32_t count, struct convgpu_page *welcomed,
                     uint64_t *armed) {
    *armed = 0;
    spinlock_lock(&swap);
    bool room = has_room(rows, count);
    uint64_t listed = 0;
    if (room) {
        for (uint32_t row = 0; row < count; row++) {
            uint32_t device = account_enter(rows, row);
            listed |= UINT64_C(1) << device;
            uint64_t freed = convgpu_slot_take_all(&offline.device[device]);
            if (freed > 0 && convgpu_slot_give(&welcomed->device[row], freed))
                *armed |= UINT64_C(1) << device;
        }
        /* Who asks meanwhile reads a row without `swap`: of a device that stays it must never seem gone. */
        for (uint32_t device = 0; device < account_count; device++)
            if (!(listed >> device & 1)) accounts[device].row = -1;
        page = welcomed;
        hears = welcomed->flags & CONVGPU_PAGE_EXPORTS;
        welcomes += hears;
        if (!welcomed_before) {
            elastic = welcomed->flags & CONVGPU_PAGE_ELASTIC;
            unified = welcomed->flags & CONVGPU_PAGE_UNIFIED;
            confined = welcomed->flags & CONVGPU_PAGE_CHOSEN;
        }
        welcomed_before = true;
        chosen_count = confined ? count : 0;
    }
    spinlock_unlock(&swap);
    return room;
}

uint32_t account_hears_of_exports(void) {
    return hears ? welcomes : 0;
}

bool account_is_unified(void) {
    return atomic_load_explicit(&unified, memory_order_relaxed);
}

void account_reset(void) {
    if (page != &offline) munmap(page, sizeof *page);
    swap = (struct spinlock){0};
    page = &offline;
    elastic = unified = confined = welcomed_before = false;
    account_count = chosen_count = 0;
    memset(accounts, 0, sizeof accounts);
    clear_offline();
}
RESET_IN_CHILD(account_reset);
