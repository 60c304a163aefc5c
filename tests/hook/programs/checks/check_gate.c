/* SPDX-License-Identifier: Apache-2.0
 *
 * Races of hook/src/gate/gate.c, which is included for what is static in it: threads pass the gate, wait at
 * it and end, while it is closed and opened; with membarrier and without. Says what failed, and exits 1.
 */
#include "../../../../hook/src/gate/gate.c"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 12, LIVES = 100, ROUNDS = 300, LATE_ROUNDS = 200000, PERMITS = 5 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

struct driver driver;
_Thread_local int inside_driver;
static _Atomic int inside, passed;
static _Atomic bool standing, over;

bool driver_load(void) {
    return true;
}

/* As the exports do (interpose/gated.c). */
static void submit(void) {
    CHECK(gate_step_in(gate_own) || gate_enter(NULL, false) == GATE_PASSED);
    atomic_fetch_add(&inside, 1);
    CHECK(!atomic_load(&standing));
    CHECK(gate_enter(NULL, false) == GATE_AROUND); /* what the driver calls itself, or a signal handler */
    atomic_fetch_add(&passed, 1);
    atomic_fetch_sub(&inside, 1);
    gate_leave();
}

/* Many threads, one after the other: flags are given back. */
static void *pass(void *left) {
    pthread_t next;
    size_t lives = (size_t)left;
    for (int turn = 0; turn < 50; turn++) submit();
    if (lives == 0 || atomic_load(&over)) return NULL;
    CHECK(pthread_create(&next, NULL, pass, (void *)(lives - 1)) == 0);
    CHECK(pthread_join(next, NULL) == 0);
    return NULL;
}

static void close_and_wait(void) {
    gate_close();
    while (gate_is_entered()) sched_yield();
    atomic_store(&standing, true);
    CHECK(atomic_load(&inside) == 0);
}

static void check_races(void) {
    pthread_t threads[THREADS];
    atomic_store(&over, false);
    for (int thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, pass, (void *)(size_t)LIVES) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        close_and_wait();
        int before = atomic_load(&passed);
        sched_yield();
        CHECK(atomic_load(&passed) == before);
        atomic_store(&standing, false);
        gate_open();
        for (int turn = 0; turn < 20; turn++) sched_yield();
    }
    atomic_store(&over, true);
    for (int thread = 0; thread < THREADS; thread++) CHECK(pthread_join(threads[thread], NULL) == 0);
    CHECK(gate_waiting() == 0 && !gate_is_entered());
}

static void *pass_always(void *unused) {
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        if (!gate_step_in(gate_own) && gate_enter(NULL, false) != GATE_PASSED) exit(1);
        if (atomic_load_explicit(&standing, memory_order_relaxed)) {
            printf("a thread passed the closed gate\n");
            exit(1);
        }
        gate_leave();
    }
    return unused;
}

/* One thread that does nothing else, and a gate that is closed at once again: stores that are seen late. */
static void check_late_stores(void) {
    pthread_t thread;
    atomic_store(&over, false);
    CHECK(pthread_create(&thread, NULL, pass_always, NULL) == 0);
    for (int round = 0; round < LATE_ROUNDS; round++) {
        gate_close();
        if (!gate_is_entered()) atomic_store(&standing, true);
        for (volatile int pause = 0; pause < 50; pause++) continue;
        atomic_store(&standing, false);
        gate_open();
        for (volatile int pause = 0; pause < round % 100; pause++) continue;
    }
    atomic_store(&over, true);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *pass_once(void *unused) {
    submit();
    return unused;
}

/* More threads at once than a chunk has flags; of those that wait, as many pass as may. */
static void check_permits(void) {
    enum { CROWD = FLAGS + 20 };
    pthread_t threads[CROWD];
    gate_close();
    atomic_store(&passed, 0);
    for (int thread = 0; thread < CROWD; thread++)
        CHECK(pthread_create(&threads[thread], NULL, pass_once, NULL) == 0);
    while (gate_waiting() < CROWD) sched_yield();
    gate_permit(PERMITS);
    while (gate_permits() > 0 || gate_is_entered()) sched_yield();
    CHECK(atomic_load(&passed) == PERMITS);
    gate_open();
    for (int thread = 0; thread < CROWD; thread++) CHECK(pthread_join(threads[thread], NULL) == 0);
    CHECK(atomic_load(&passed) == CROWD);
}

int main(void) {
    CHECK(gate_enter(NULL, false) == GATE_AROUND && !gate_takes_part());
    gate_decide(true);
    gate_decide(false); /* the first word counts */
    CHECK(gate_takes_part() && gate_is_open());
    check_races();
    check_late_stores();
    check_permits();
    gate_is_light = false;
    check_races();
    check_late_stores();
    return 0;
}
