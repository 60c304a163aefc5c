/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit test of hook/src/visibility/environment.c: a variable that comes and goes while other threads read the
 * environment, and one adds and changes variables of its own.
 */
#include "visibility/environment.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20000, READERS = 2, LENGTH = sizeof "VISIBLE" - 1 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static char entry[] = "VISIBLE=chosen";
static atomic_bool over;

static bool is(const char *name, const char *value) {
    const char *there = getenv(name);
    return value ? there && strcmp(there, value) == 0 : !there;
}

static unsigned count(void) {
    unsigned entries = 0;
    for (char **next = environ; next && *next; next++) entries++;
    return entries;
}

/* What never changes is always found, whole. */
static void *read_on(void *unused) {
    (void)unused;
    while (!over) {
        CHECK(is("STEADY", "yes"));
        const char *visible = getenv("VISIBLE");
        CHECK(!visible || strcmp(visible, "own") == 0 || strcmp(visible, "chosen") == 0);
    }
    return NULL;
}

static void come_and_go(const char *own) {
    unsigned before = count();
    CHECK(environment_enter(entry, LENGTH));
    CHECK(is("VISIBLE", "chosen") && is("STEADY", "yes"));
    environment_leave();
    CHECK(is("VISIBLE", own) && is("STEADY", "yes") && count() == before);
}

static void with_readers(const char *own) {
    pthread_t readers[READERS];
    over = false;
    for (int reader = 0; reader < READERS; reader++)
        CHECK(pthread_create(&readers[reader], NULL, read_on, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) come_and_go(own);
    over = true;
    for (int reader = 0; reader < READERS; reader++) CHECK(pthread_join(readers[reader], NULL) == 0);
}

/* What the program does to the environment meanwhile stays done. */
static void with_changes(void) {
    CHECK(environment_enter(entry, LENGTH));
    CHECK(setenv("ADDED", "1", 1) == 0 && setenv("STEADY", "changed", 1) == 0 && unsetenv("REMOVED") == 0);
    environment_leave();
    CHECK(is("ADDED", "1") && is("STEADY", "changed") && is("REMOVED", NULL) && is("VISIBLE", NULL));
    CHECK(setenv("STEADY", "yes", 1) == 0);
    CHECK(environment_enter(entry, LENGTH));
    CHECK(setenv("VISIBLE", "later", 1) == 0);
    environment_leave();
    CHECK(is("VISIBLE", "later") && unsetenv("VISIBLE") == 0);
}

extern void (*const __start_convgpu_fork_reset[])(void);

static void in_a_child(const char *own) {
    int status;
    CHECK(environment_enter(entry, LENGTH));
    pid_t child = fork();
    if (child == 0) {
        __start_convgpu_fork_reset[0]();
        CHECK(is("VISIBLE", own) && is("STEADY", "yes"));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    environment_leave();
}

int main(void) {
    CHECK(setenv("STEADY", "yes", 1) == 0 && setenv("REMOVED", "soon", 1) == 0);
    with_readers(NULL);
    with_changes();
    in_a_child(NULL);
    CHECK(setenv("VISIBLE", "own", 1) == 0);
    with_readers("own");
    in_a_child("own");
    come_and_go("own");
    CHECK(clearenv() == 0 && environment_enter(entry, LENGTH) && is("VISIBLE", "chosen"));
    environment_leave();
    CHECK(count() == 0);
    return 0;
}
