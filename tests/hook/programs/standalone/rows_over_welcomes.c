/* SPDX-License-Identifier: Apache-2.0
 *
 * hook/src/scheduler/account.c alone: one thread reads the row of a device, as who asks for memory does,
 * while WELCOME after WELCOME lists that device and, every second time, another one. Says how often it seemed
 * gone.
 */
#include "scheduler/account.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { WELCOMES = 20000 };

static _Atomic bool done;
static _Atomic unsigned long gone, reads;

static void *ask(void *unused) {
    while (!done) {
        gone += account_row(0) < 0;
        reads++;
    }
    return unused;
}

int main(void) {
    struct convgpu_device rows[2] = {{.limit = 1}, {.limit = 1}};
    uint64_t armed;
    pthread_t asking;
    rows[0].uuid[0] = 1;
    rows[1].uuid[0] = 2;
    for (int welcome = 0; welcome < WELCOMES; welcome++) {
        struct convgpu_page *page =
            mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || !account_welcome(rows, 1 + welcome % 2, page, &armed)) return 1;
        if (welcome == 0 && pthread_create(&asking, NULL, ask, NULL) != 0) return 1;
        account_leave();
    }
    done = true;
    pthread_join(asking, NULL);
    printf("gone %lu, read %d, second %d\n", (unsigned long)gone, reads > WELCOMES / 100,
           account_row(1) >= 0);
    return 0;
}
