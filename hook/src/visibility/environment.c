/* SPDX-License-Identifier: Apache-2.0
 *
 * Not setenv(): other threads read the environment meanwhile, and no lock protects them. setenv() enlarges
 * the array of entries by realloc(), so that a reader may walk through memory that is gone. Here nothing is
 * ever freed or moved:
 * - a variable that is there gets another pointer in its slot, by one store, and its own pointer back;
 * - for one that is not, `environ` is set to an array of ours, which has one slot more and is never freed. It
 *   stays in use, without the entry, for other threads may have changed it meanwhile (setenv() of a variable
 * that is there writes into it). To glibc it is an array that the program itself assigned to `environ`: it
 * copies such a one before it enlarges it. A reader sees the environment with the entry or without it, each
 * time whole. A thread that adds a variable at the same time copies our entry into an array of its own; it is
 * taken out of there too.
 */
#include "visibility/environment.h"

#include "base/fork_reset.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char **own;         /* the array of ours that was last in use */
static size_t own_room;    /* its slots, with the last NULL */
static char *entered;      /* the entry while it stands there */
static char *replaced;     /* what stood in its slot; NULL: nothing */
static size_t name_length; /* of `entered`, without the '=' */

static char **load(void) {
    return __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
}

static size_t count_entries(char **list) {
    size_t count = 0;
    while (list && list[count]) count++;
    return count;
}

/* The slot of the variable, or NULL. */
static char **find_variable(char **list, const char *entry) {
    for (; list && *list; list++)
        if (strncmp(*list, entry, name_length + 1) == 0) return list;
    return NULL;
}

static char **find_entered(char **list) {
    for (; list && *list; list++)
        if (*list == entered) return list;
    return NULL;
}

/* An array with the entries of `list`, the new one, and a NULL. */
static char **copy_with(char **list, size_t count, char *entry, size_t *room) {
    *room = count + 2;
    char **copy =
        mmap(NULL, *room * sizeof *copy, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return NULL;
    for (size_t index = 0; index < count; index++)
        copy[index] = __atomic_load_n(&list[index], __ATOMIC_RELAXED);
    copy[count] = entry;
    return copy;
}

static bool append(char **list, char *entry) {
    size_t count = count_entries(list), room;
    if (list && list == own && count + 2 <= own_room) {
        own[count + 1] = NULL;
        __atomic_store_n(&own[count], entry, __ATOMIC_RELEASE);
        return true;
    }
    char **copy = copy_with(list, count, entry, &room);
    if (!copy) return false;
    if (!__atomic_compare_exchange_n(&environ, &list, copy, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        munmap(copy, room * sizeof *copy); /* nobody has seen it */
        return append(list, entry);
    }
    own = copy;
    own_room = room;
    return true;
}

bool environment_enter(char *entry, size_t length) {
    name_length = length;
    replaced = NULL;
    char **list = load(), **slot = find_variable(list, entry);
    bool there = slot || append(list, entry);
    if (slot) replaced = __atomic_exchange_n(slot, entry, __ATOMIC_ACQ_REL);
    if (there) entered = entry;
    return there;
}

/* A slot that holds another entry now was given it by the program meanwhile, and stays. */
void environment_leave(void) {
    char **slot = find_entered(load()), *expected = entered;
    char name[64];
    if (slot && replaced) {
        (void)__atomic_compare_exchange_n(slot, &expected, replaced, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED);
    } else if (slot && name_length < sizeof name) {
        memcpy(name, entered, name_length);
        name[name_length] = '\0';
        unsetenv(name); /* closes the gap, under the C library's own lock */
    }
    entered = NULL;
}

/* A child that was forked while another thread of the parent was in the driver has the entry, and no thread
 * to take it back. The C library's lock may be held for ever here, so unsetenv() is not for us; we are alone.
 */
static void environment_reset(void) {
    char **slot = entered ? find_entered(environ) : NULL;
    if (slot && replaced) *slot = replaced;
    for (; slot && !replaced && *slot; slot++) slot[0] = slot[1];
    entered = NULL;
}
RESET_IN_CHILD(environment_reset);
