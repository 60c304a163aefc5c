/* SPDX-License-Identifier: Apache-2.0
 *
 * In several epoll instances, so that to ask for one name of thousands does not read all of them. They have
 * high numbers, as the socket of the session (connection.c). Programs close descriptors that they do not know
 * (daemons close all): an instance in whose list our mark is missing is not ours any more, and what was
 * registered there is taken for closed. Where the list cannot be read, everything may be open.
 */
#include "exports/descriptors.h"

#include "base/background_thread.h"
#include "base/fork_reset.h"
#include "base/futex.h"
#include "base/no_cancel.h"
#include "tables/registry.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { INSTANCES = 16, INSTANCES_SHIFT = 60, HIGH_DESCRIPTOR = 960, PERIOD_MS = 250, LONGEST_LINE = 128 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf; held where the next ones are written */
static _Atomic int instances[INSTANCES] = {[0 ... INSTANCES - 1] = -1};
static int mark = -1; /* an eventfd that each instance knows, under the name 0 */
static int latest,
    latest_number;   /* the last descriptor that was entered, and the number that it had for it */
static bool started; /* the thread */
static _Atomic uint32_t waited_for; /* things: the thread's futex */
static _Atomic uint32_t exporting;  /* calls between descriptors_begin() and descriptors_end() */
static _Atomic uint64_t names;
static _Atomic uint32_t lost; /* instances that the program has closed */

uint64_t descriptors_new_name(void) {
    return ++names;
}

uint32_t descriptors_lost(void) {
    return lost;
}

void descriptors_begin(void) {
    exporting++;
}

void descriptors_end(void) {
    exporting--;
}

static _Atomic int *instance_of(uint64_t name) {
    return &instances[name * 0xD6E8FEB86659FD93u >> INSTANCES_SHIFT];
}

int descriptors_raise(int low) {
    int high = low < 0 ? -1 : (int)syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) return low;
    close(low);
    return high;
}

/* An instance that knows our mark, or -1. */
static int make_instance(void) {
    struct epoll_event nothing = {.events = 0, .data.u64 = 0};
    if (mark < 0) mark = descriptors_raise(eventfd(0, EFD_CLOEXEC));
    int instance = mark < 0 ? -1 : descriptors_raise(epoll_create1(EPOLL_CLOEXEC));
    if (instance < 0 || epoll_ctl(instance, EPOLL_CTL_ADD, mark, &nothing) == 0) return instance;
    close(instance);
    return -1;
}

/* One instance knows a file once by each number: for a second name of it there must be another number. A file
 * that cannot be waited for (EPERM) is nobody's memory that we know of. */
static bool enter(int instance, uint64_t name, int descriptor) {
    struct epoll_event nothing = {.events = 0, .data.u64 = name};
    int number = descriptor;
    bool entered = epoll_ctl(instance, EPOLL_CTL_ADD, number, &nothing) == 0 || errno == EPERM;
    if (!entered && errno == EEXIST && latest == descriptor) number = latest_number;
    while (!entered && errno == EEXIST) {
        int next = (int)syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, number + 1);
        if (next < 0) return false;
        number = next;
        entered = epoll_ctl(instance, EPOLL_CTL_ADD, number, &nothing) == 0;
        int error = errno;
        close(number);
        errno = error;
    }
    latest = descriptor;
    latest_number = number;
    return entered;
}

/* Shows the names in whole lines of text, and returns how much of it that was. */
static size_t show_lines(char *text, descriptors_each *each, void *argument) {
    char *line = text, *end;
    for (; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        const char *digit = strncmp(line, "tfd:", 4) == 0 ? strstr(line, "data:") : NULL;
        if (!digit) continue;
        uint64_t name = 0;
        for (digit += 5; *digit == ' '; digit++) continue;
        for (; isxdigit((unsigned char)*digit); digit++)
            name = name << 4 | (uint64_t)(*digit <= '9' ? *digit - '0' : (*digit | 0x20) - 'a' + 10);
        each(name, argument);
    }
    return (size_t)(line - text);
}

/* What a list is read for: our mark must be in it. */
struct reading {
    descriptors_each *each;
    void *argument;
    bool marked;
};

static void read_name(uint64_t name, void *argument) {
    struct reading *reading = argument;
    if (name == 0)
        reading->marked = true;
    else
        reading->each(name, reading->argument);
}

/* Reads a list to its end. Returns 0, or why not: errno. */
static int read_list(int instance, struct reading *reading) {
    char path[64], text[4096];
    size_t have = 0;
    ssize_t got = 0;
    /* The files of this thread: of /proc/self they are those of a main thread that may have ended. */
    snprintf(path, sizeof path, "/proc/self/task/%ld/fdinfo/%d", syscall(SYS_gettid), instance);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno;
    while (have <= LONGEST_LINE && (got = read(file, text + have, sizeof text - 1 - have)) > 0) {
        have += (size_t)got;
        text[have] = '\0';
        size_t shown = show_lines(text, read_name, reading);
        have -= shown;
        memmove(text, text + shown, have);
    }
    int error = got < 0 ? errno : 0;
    close(file);
    return error;
}

/* Reads the list of an instance, and forgets one that the program has closed. Returns 0, or why not: errno.
 */
static int look(_Atomic int *instance, descriptors_each *each, void *argument) {
    struct reading reading = {.each = each, .argument = argument};
    int number = *instance, saved_errno = errno;
    if (number < 0) return 0;
    int cancellation = no_cancel_begin(), error = read_list(number, &reading);
    bool is_closed = error == ENOENT && fcntl(number, F_GETFD) < 0;
    if (is_closed || (error == 0 && !reading.marked)) {
        if (atomic_compare_exchange_strong(instance, &number, -1)) lost++;
        error = 0;
    }
    no_cancel_end(cancellation);
    errno = saved_errno;
    return error;
}

static void ignore(uint64_t name, void *unused) {
    (void)name;
    (void)unused;
}

bool descriptors_watch(uint64_t name, int descriptor) {
    int saved_errno = errno, cancellation = no_cancel_begin();
    pthread_mutex_lock(&lock);
    _Atomic int *instance = instance_of(name);
    bool had = *instance >= 0;
    (void)look(instance, ignore, NULL);
    if (had && *instance < 0) mark = -1; /* it was closed with the instance, or will not be known as ours */
    if (*instance < 0) *instance = make_instance();
    bool entered = *instance >= 0 && enter(*instance, name, descriptor);
    pthread_mutex_unlock(&lock);
    no_cancel_end(cancellation);
    errno = saved_errno;
    return entered;
}

bool descriptors_visit(descriptors_each *each, void *argument) {
    bool all = exporting == 0;
    for (int instance = 0; all && instance < INSTANCES; instance++)
        all = look(&instances[instance], each, argument) == 0;
    return all && exporting == 0;
}

struct search {
    uint64_t name;
    bool found;
};

static void compare(uint64_t name, void *argument) {
    struct search *search = argument;
    search->found = search->found || name == search->name;
}

bool descriptors_may_be_open(uint64_t name) {
    struct search search = {.name = name};
    return exporting > 0 || look(instance_of(name), compare, &search) != 0 || search.found || exporting > 0;
}

static void *serve(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "convgpu-exports");
    for (;;) {
        uint32_t things = atomic_load(&waited_for);
        futex_wait(&waited_for, things, things > 0 ? PERIOD_MS : FUTEX_FOR_EVER);
        registry_unkeep();
    }
    return NULL;
}

void descriptors_start(void) {
    int cancellation = no_cancel_begin();
    pthread_mutex_lock(&lock);
    if (!started) started = background_thread(serve);
    pthread_mutex_unlock(&lock);
    no_cancel_end(cancellation);
}

void descriptors_wait_for(int count) {
    if (atomic_fetch_add(&waited_for, (uint32_t)count) == 0) futex_wake(&waited_for);
}

/* The parent's instances know the parent's files. What is not ours any more, is not for us to close. */
static void descriptors_reset(void) {
    for (int instance = 0; instance < INSTANCES; instance++) {
        (void)look(&instances[instance], ignore, NULL);
        if (instances[instance] >= 0) close(instances[instance]);
        instances[instance] = -1;
    }
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    mark = -1;
    latest = latest_number = 0;
    started = false;
    waited_for = exporting = 0;
}
RESET_IN_CHILD(descriptors_reset);
