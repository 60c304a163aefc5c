/* SPDX-License-Identifier: Apache-2.0
 *
 * The answer to LIST: every live allocation of the process, read from the families' own tables when somebody
 * asks, by a thread of its own: the families' locks may be held by threads that wait for the service thread.
 * One question at a time; another one before the last part of the answer is not answered, and neither is one
 * for which there is no thread or no memory.
 */
#include "base/background_thread.h"
#include "base/coarse_clock.h"
#include "base/fork_reset.h"
#include "scheduler/account.h"
#include "scheduler/channel.h"
#include "tables/registry.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { MOST_ROWS = 65536, PAGE_ROWS = 64 }; /* a frame of a process has at most 4,096 bytes */

/* One frame. */
struct listing_page {
    struct convgpu_header header;
    struct convgpu_listed listed;
    struct convgpu_listed_row rows[PAGE_ROWS];
};

struct listing {
    uint64_t id;          /* of the question */
    uint64_t count, size; /* of all */
    uint32_t now, rows, room;
    struct convgpu_listed_row *row;
};

static atomic_bool busy;
static struct {
    uint64_t id;
    uint32_t most;
} question; /* whoever made `busy` true writes it; its thread reads it before `busy` is false again */

/* A registry_visit: a lock of the family is held. */
static void add_row(const struct live_allocation *allocation, void *argument) {
    struct listing *listing = argument;
    listing->count++;
    listing->size += allocation->size;
    if (listing->rows == listing->room) return;
    struct convgpu_listed_row *row = &listing->row[listing->rows++];
    row->address = allocation->address;
    row->size = allocation->size;
    row->device = (uint32_t)account_row((uint32_t)allocation->device);
    row->age = allocation->made > 0 ? listing->now - allocation->made : UINT32_MAX;
    strncpy(row->call, allocation->call ? allocation->call : allocation->kind, sizeof row->call - 1);
}

/* False when the connection was lost: then nobody waits for the rest. */
static bool send_page(const struct listing *listing, uint32_t first) {
    uint32_t rows = listing->rows - first < PAGE_ROWS ? listing->rows - first : PAGE_ROWS;
    struct listing_page page = {
        .header = {.version = CONVGPU_PROTOCOL_VERSION, .kind = CONVGPU_LISTED, .id = listing->id}};
    page.header.size = (uint32_t)(sizeof page.header + sizeof page.listed + rows * sizeof page.rows[0]);
    page.listed = (struct convgpu_listed){.row_count = rows,
                                          .more = first + rows < listing->rows,
                                          .count = listing->count,
                                          .size = listing->size};
    memcpy(page.rows, listing->row + first, rows * sizeof page.rows[0]);
    return channel_send(&page, page.header.size);
}

/* Who has the last part asks again at once: that question must not come while this thread is still busy. */
static void answer(struct listing *listing) {
    uint32_t first = 0;
    bool is_connected = true;
    registry_enumerate(add_row, listing);
    for (; is_connected && first + PAGE_ROWS < listing->rows; first += PAGE_ROWS)
        is_connected = send_page(listing, first);
    atomic_store(&busy, false);
    if (is_connected) (void)send_page(listing, first);
}

static void *list(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "convgpu-list");
    struct listing listing = {.id = question.id, .now = coarse_clock_tick(), .room = question.most};
    size_t size = (size_t)(question.most + 1) * sizeof *listing.row;
    void *rows = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rows == MAP_FAILED) {
        atomic_store(&busy, false);
        return NULL;
    }
    listing.row = rows;
    answer(&listing);
    munmap(rows, size);
    return NULL;
}

static void lister_begin(uint64_t id, uint32_t most) {
    if (atomic_exchange(&busy, true)) return;
    question.id = id;
    question.most = most < MOST_ROWS ? most : MOST_ROWS;
    if (!background_thread(list)) atomic_store(&busy, false);
}

REGISTER_LISTER(lister_begin);

static void lister_reset(void) {
    busy = false;
}
RESET_IN_CHILD(lister_reset);
