/* SPDX-License-Identifier: Apache-2.0
 *
 * Races of hook/src/gate/gate.c and captures.c, which are included for what is static in them: threads pass
 * the gate, wait at it and end, while it is closed and opened; with membarrier and without. What happens in
 * the moment between a thread's decision to wait and its futex is made to happen there. Says what failed, and
 * exits 1. The word: how often stores may be seen late.
 */
#include "base/futex.h"

#include <stddef.h>

static _Thread_local void (*in_the_moment)(void); /* is called once */

static void watched_wait(_Atomic uint32_t *word, uint32_t value, int milliseconds) {
    void (*call)(void) = in_the_moment;
    in_the_moment = NULL;
    if (call) call();
    futex_wait(word, value, milliseconds);
}

#define futex_wait watched_wait
#include "../../../../hook/src/gate/captures.c"
#include "../../../../hook/src/gate/gate.c"
#undef futex_wait

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 12, LIVES = 100, ROUNDS = 300, PERMITS = 5 };

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
static void check_late_stores(int rounds) {
    pthread_t thread;
    atomic_store(&over, false);
    CHECK(pthread_create(&thread, NULL, pass_always, NULL) == 0);
    for (int round = 0; round < rounds; round++) {
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

static void enter_memory(void) {
    CHECK(gate_enter_memory());
    gate_leave();
}

static void permit_one(void) {
    gate_permit(1);
}

static void raise_signal(void) {
    CHECK(raise(SIGUSR1) == 0);
}

static _Atomic int handled;

static void handle_and_open(int number) {
    (void)number;
    atomic_fetch_add(&handled, 1);
    gate_open();
}

/* Without SA_RESTART, so that it ends a futex. */
static void set_handler(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

/* Each way to wait, while something happens behind the decision to wait: it would wait for ever otherwise. */
static void check_moments(void) {
    void (*const ways[])(void) = {submit, enter_memory, gate_wait_open};
    void (*const events[])(void) = {gate_open, raise_signal};
    set_handler(handle_and_open);
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++)
        for (size_t event = 0; event < sizeof events / sizeof events[0]; event++) {
            atomic_store(&handled, 0);
            gate_close();
            in_the_moment = events[event];
            ways[way]();
            CHECK(in_the_moment == NULL && gate_is_open() && gate_waiting() == 0);
            CHECK(atomic_load(&handled) == (event == 1));
        }
    gate_close();
    in_the_moment = permit_one;
    submit();
    CHECK(in_the_moment == NULL && !gate_is_open() && gate_permits() == 0);
    gate_open();
}

static CUresult begin_capture(CUstream stream, int mode) {
    (void)stream, (void)mode;
    CHECK(gate_is_entered() && captures_count() == 1);
    return CUDA_SUCCESS;
}

/* A stop ends the synchronisation only when nobody is inside; then the capture waits at the gate. */
static void stop_and_release(void) {
    gate_close();
    CHECK(!gate_is_entered() && captures_count() == 0);
    captures_release();
    in_the_moment = gate_open;
}

/* A capture that begins while we synchronise. */
static void check_captures(void) {
    CUstream stream = (CUstream)(uintptr_t)64;
    driver.cuStreamBeginCapture_v2 = begin_capture;
    CHECK(captures_hold());
    in_the_moment = stop_and_release;
    CHECK(hooked_cuStreamBeginCapture_v2(stream, 0) == CUDA_SUCCESS);
    CHECK(in_the_moment == NULL && !gate_is_entered() && gate_waiting() == 0);
    CHECK(!captures_hold());
    captures_leave(stream);
    CHECK(captures_hold());
    captures_release();
}

/* Signals while a thread waits: each is handled, none lets it pass, and it waits for the change again. Not
 * under ThreadSanitizer, which keeps a signal until the thread calls what it intercepts: behind a futex it
 * never does. */
#ifndef __SANITIZE_THREAD__
static void handle(int number) {
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void check_signals(void) {
    enum { SIGNALS = 50 };
    pthread_t thread;
    set_handler(handle);
    atomic_store(&handled, 0);
    atomic_store(&passed, 0);
    gate_close();
    CHECK(pthread_create(&thread, NULL, pass_once, NULL) == 0);
    while (gate_waiting() == 0) sched_yield();
    for (int sent = 1; sent <= SIGNALS; sent++) {
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while (atomic_load(&handled) < sent) sched_yield();
    }
    CHECK(atomic_load(&passed) == 0);
    gate_open();
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(atomic_load(&passed) == 1 && gate_waiting() == 0);
}
#endif

int main(int count, char **words) {
    int late_rounds = count > 1 ? atoi(words[1]) : 0;
    CHECK(gate_enter(NULL, false) == GATE_AROUND && !gate_takes_part());
    gate_decide(true);
    gate_decide(false); /* the first word counts */
    CHECK(gate_takes_part() && gate_is_open());
    check_races();
    check_late_stores(late_rounds);
    check_permits();
    check_moments();
    check_captures();
#ifndef __SANITIZE_THREAD__
    check_signals();
#endif
    gate_is_light = false;
    check_races();
    check_late_stores(late_rounds);
    return 0;
}
