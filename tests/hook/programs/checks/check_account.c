/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit test of hook/src/scheduler/account.c: threads take and give while the page is swapped again and again,
 * as by a scheduler that goes away and comes back. At every HELLO and WELCOME the scheduler's book is
 * compared: what it leased is exactly what is used and what is headroom.
 */
#include "scheduler/account.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS = 3, SWAPS = 3000, PIECE = 512, HELD = 64 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static atomic_bool over;
static _Atomic uint64_t taken; /* by all threads, by their own count */

static struct convgpu_page *new_page(void) {
    void *page =
        mmap(NULL, sizeof(struct convgpu_page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    return page;
}

static void *take_and_give(void *unused) {
    (void)unused;
    uint64_t held = 0;
    while (!over) {
        for (int piece = 0; piece < HELD; piece++)
            if (account_take(0, PIECE, &(bool){false})) held += PIECE;
        while (held > HELD / 2 * PIECE) {
            (void)account_give(0, PIECE);
            held -= PIECE;
        }
    }
    taken += held;
    return NULL;
}

/* One absence: returns the new page, whose word and `used` make up what was told in HELLO. */
static struct convgpu_page *swap_page(const struct convgpu_device *row) {
    struct convgpu_held held[CONVGPU_MAX_DEVICES];
    uint64_t wanted;
    account_leave();
    uint32_t rows = account_hold(held);
    CHECK(rows <= 1);
    struct convgpu_page *page = new_page();
    CHECK(account_welcome(row, 1, page, &wanted));
    CHECK(wanted == 0);
    CHECK(rows == 0 || memcmp(held[0].device, row->uuid, CONVGPU_UUID_SIZE) == 0);
    page->device[1].headroom = rows == 0 ? 0 : held[0].size; /* where the check at the end finds the lease */
    return page;
}

int main(void) {
    const struct convgpu_device row = {.uuid = "sixteen bytes...", .limit = 1 << 30};
    pthread_t threads[THREADS];
    uint64_t wanted, lease = 0;
    struct convgpu_page *page = new_page();
    CHECK(account_welcome(&row, 1, page, &wanted));
    CHECK(account_find(row.uuid) == 0 && account_row(0) == 0 && account_devices() == 1);
    for (int index = 0; index < THREADS; index++) pthread_create(&threads[index], NULL, take_and_give, NULL);
    for (int turn = 0; turn < SWAPS; turn++) {
        convgpu_slot_lease(&page->device[0], 100 * PIECE);
        account_accept(0, PIECE); /* and an accepted request, freed at once */
        CHECK(!account_give(0, PIECE));
        page = swap_page(&row);
        lease = page->device[1].headroom;
    }
    over = true;
    for (int index = 0; index < THREADS; index++) pthread_join(threads[index], NULL);
    CHECK(account_used(0) == taken);
    CHECK(lease == taken + convgpu_slot_read(&page->device[0]));
    account_reset();
    CHECK(account_devices() == 0 && account_find(row.uuid) < 0);
    return 0;
}
