/* SPDX-License-Identifier: Apache-2.0
 *
 * In several epoll instances, so that to ask for one name of thousands does not read all of them. They have
 * high numbers, as the socket of the session (connection.c): what programs close that close everything, is
 * taken for closed by everybody then.
 */
#include "exports/descriptors.h"

#include "base/background_thread.h"
#include "base/fork_reset.h"
#include "base/futex.h"
#include "base/no_cancel.h"
#include "scheduler/account.h"
#include "tables/registry.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { INSTANCES = 16, INSTANCES_SHIFT = 60, HIGH_DESCRIPTOR = 960, PERIOD_MS = 250, LONGEST_LINE = 128 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf; held where the next two are written */
static _Atomic int instances[INSTANCES] = {[0 ... INSTANCES - 1] = -1};
static bool started;                /* the thread */
static _Atomic uint32_t waited_for; /* things: the thread's futex */

static _Atomic int *instance_of(uint64_t name) {
    return &instances[name * 0xD6E8FEB86659FD93u >> INSTANCES_SHIFT];
}

static int make_instance(void) {
    int low = epoll_create1(EPOLL_CLOEXEC);
    int high = low < 0 ? -1 : (int)syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) return low;
    close(low);
    return high;
}

static void *serve(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "convgpu-exports");
    for (;;) {
        uint32_t things = atomic_load(&waited_for);
        futex_wait(&waited_for, things, things > 0 ? PERIOD_MS : FUTEX_FOR_EVER);
        for (int device = 0; device < (int)account_devices(); device++) registry_reclaim(device, false);
    }
    return NULL;
}

/* One instance knows a file once by each number: for a second name of it there must be another number. */
static void enter(int instance, uint64_t name, int descriptor) {
    struct epoll_event nothing = {.events = 0, .data.u64 = name};
    int number = descriptor;
    while (number >= 0 && epoll_ctl(instance, EPOLL_CTL_ADD, number, &nothing) != 0 && errno == EEXIST) {
        int next = (int)syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, number + 1);
        if (number != descriptor) close(number);
        number = next;
    }
    if (number >= 0 && number != descriptor) close(number);
}

void descriptors_watch(uint64_t name, int descriptor) {
    int saved_errno = errno;
    pthread_mutex_lock(&lock);
    _Atomic int *instance = instance_of(name);
    if (*instance < 0) *instance = make_instance();
    if (*instance >= 0) enter(*instance, name, descriptor);
    if (!started) started = background_thread(serve);
    pthread_mutex_unlock(&lock);
    errno = saved_errno;
}

static uint64_t read_number(const char *text) {
    uint64_t number = 0;
    while (*text == ' ') text++;
    for (; isxdigit((unsigned char)*text); text++)
        number = number << 4 | (uint64_t)(*text <= '9' ? *text - '0' : (*text | 0x20) - 'a' + 10);
    return number;
}

/* Shows the names in whole lines of text, and returns how much of it that was. */
static size_t show_lines(char *text, descriptors_each *each, void *argument) {
    char *line = text, *end;
    for (; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        const char *name = strncmp(line, "tfd:", 4) == 0 ? strstr(line, "data:") : NULL;
        if (name) each(read_number(name + 5), argument);
    }
    return (size_t)(line - text);
}

static void visit_instance(int instance, descriptors_each *each, void *argument) {
    char path[64], text[4096];
    size_t have = 0;
    if (instance < 0) return;
    int saved_errno = errno, cancellation = no_cancel_begin();
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", instance);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t got; file >= 0 && (got = read(file, text + have, sizeof text - 1 - have)) > 0;) {
        have += (size_t)got;
        text[have] = '\0';
        size_t shown = show_lines(text, each, argument);
        have -= shown;
        memmove(text, text + shown, have);
        if (have > LONGEST_LINE) break; /* it is no list of ours */
    }
    if (file >= 0) close(file);
    no_cancel_end(cancellation);
    errno = saved_errno;
}

void descriptors_visit(descriptors_each *each, void *argument) {
    for (int instance = 0; instance < INSTANCES; instance++)
        visit_instance(instances[instance], each, argument);
}

struct search {
    uint64_t name;
    bool found;
};

static void compare(uint64_t name, void *argument) {
    struct search *search = argument;
    search->found = search->found || name == search->name;
}

bool descriptors_are_open(uint64_t name) {
    struct search search = {.name = name};
    visit_instance(*instance_of(name), compare, &search);
    return search.found;
}

void descriptors_wait_for(int count) {
    if (atomic_fetch_add(&waited_for, (uint32_t)count) == 0) futex_wake(&waited_for);
}

/* The parent's instances know the parent's files. */
static void descriptors_reset(void) {
    for (int instance = 0; instance < INSTANCES; instance++) {
        if (instances[instance] >= 0) close(instances[instance]);
        instances[instance] = -1;
    }
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    started = false;
    waited_for = 0;
}
RESET_IN_CHILD(descriptors_reset);
