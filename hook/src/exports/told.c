/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance is one of its own: the scheduler asks it for single entries by their numbers (kcmp(2)), so
 * each descriptor is entered under a number that no other one had for a while. Programs close descriptors
 * that they do not know: an instance that does not know our mark is not ours any more, and the next one has
 * another generation. What the scheduler has copies of, goes on.
 */
#include "exports/told.h"

#include "base/fork_reset.h"
#include "base/no_cancel.h"
#include "exports/descriptors.h"
#include "exports/kept.h"
#include "scheduler/account.h"
#include "scheduler/channel.h"
#include "tables/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FIRST_NUMBER = 512, NUMBERS = 256 };

/* Guards the instance and `told`. Inside the families' locks; asking the scheduler is outside. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int instance = -1, mark = -1;
static uint32_t generation, next_number;
static uint32_t lost;    /* descriptors_lost(), when the last look began */
static uint32_t told_to; /* account_hears_of_exports(), when all was told last */
static void untell(const struct allocation *entry);
/* By name; `value` is the number of its last descriptor, and above that the generation. */
static struct kept told = {
    .entries = ALLOCATIONS_INITIALIZER, .open = ALLOCATIONS_INITIALIZER, .end = untell};

static bool is_ours(void) {
    struct epoll_event nothing = {.events = 0};
    return instance >= 0 && epoll_ctl(instance, EPOLL_CTL_MOD, mark, &nothing) == 0;
}

/* `lock` is held. */
static bool make_instance(void) {
    struct epoll_event nothing = {.events = 0};
    if (is_ours()) return true;
    generation++;
    mark = descriptors_raise(eventfd(0, EFD_CLOEXEC));
    instance = mark < 0 ? -1 : descriptors_raise(epoll_create1(EPOLL_CLOEXEC));
    return instance >= 0 && epoll_ctl(instance, EPOLL_CTL_ADD, mark, &nothing) == 0;
}

/* Enters the file under a number that others had as long ago as can be. -1: it cannot be. `lock` is held. */
static int enter(int descriptor) {
    struct epoll_event nothing = {.events = 0};
    int wanted = FIRST_NUMBER + (int)(next_number++ % NUMBERS);
    int other = (int)syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, wanted);
    int number = other < 0 ? descriptor : other;
    bool entered = make_instance() && epoll_ctl(instance, EPOLL_CTL_ADD, number, &nothing) == 0;
    int error = errno;
    if (other >= 0) close(other);
    errno = error;
    return entered || error == EEXIST ? number : -1;
}

static struct convgpu_exported body_of(const struct allocation *entry) {
    return (struct convgpu_exported){.name = entry->address,
                                     .size = entry->size,
                                     .instance = (uint32_t)instance,
                                     .number = (uint32_t)entry->value,
                                     .generation = (uint32_t)(entry->value >> 32)};
}

/* Nobody has it any more; or our list of it is lost, and the scheduler's copy knows. */
static void untell(const struct allocation *entry) {
    struct convgpu_exported body = body_of(entry);
    body.size = 0;
    if (account_hears_of_exports() != 0 && descriptors_lost() == lost)
        (void)channel_tell(CONVGPU_EXPORTED, &body, sizeof body);
}

/* Replaces or adds the entry, and tells of it. */
static void tell(struct allocation entry) {
    struct allocation before;
    pthread_mutex_lock(&lock);
    if (allocations_remove(&told.entries, entry.address, &before)) {
        told.count--;
        descriptors_wait_for(-1);
    }
    (void)kept_enter(&told, entry);
    struct convgpu_exported body = body_of(&entry);
    pthread_mutex_unlock(&lock);
    struct channel_answer answer;
    if (entry.size > 0 && account_hears_of_exports() != 0)
        (void)channel_query((uint32_t)entry.device, &body, &answer);
}

uint64_t told_expect(int device, uint64_t size) {
    int row = device < 0 || size == 0 || account_hears_of_exports() == 0 ? -1 : account_row((uint32_t)device);
    if (row < 0) return 0;
    struct convgpu_exported body = {.name = descriptors_new_name(),
                                    .size = size,
                                    .device = (uint32_t)row,
                                    .instance = CONVGPU_EXPORT_EXPECTED};
    int saved_errno = errno;
    bool heard = channel_tell(CONVGPU_EXPORTED, &body, sizeof body);
    errno = saved_errno;
    return heard ? body.name : 0;
}

void told_expected(uint64_t name) {
    struct convgpu_exported body = {.name = name};
    int saved_errno = errno;
    if (name != 0) (void)channel_tell(CONVGPU_EXPORTED, &body, sizeof body);
    errno = saved_errno;
}

bool told_watch(uint64_t name, int device, uint64_t size, int descriptor) {
    int saved_errno = errno, cancellation = no_cancel_begin();
    bool watched = descriptors_watch(name, descriptor);
    if (watched && device >= 0) {
        pthread_mutex_lock(&lock);
        int number = enter(descriptor);
        uint64_t value = (uint64_t)generation << 32 | (uint32_t)number;
        pthread_mutex_unlock(&lock);
        struct allocation entry = {
            .address = name, .size = size, .device = (uint64_t)device & 63, .value = value};
        if (number >= 0) tell(entry);
        watched = number >= 0 || errno == EPERM; /* a file that cannot be waited for */
    }
    no_cancel_end(cancellation);
    errno = saved_errno;
    return watched;
}

void told_grow(uint64_t name, uint64_t size) {
    struct allocation entry;
    pthread_mutex_lock(&lock); /* a look takes entries out for a moment */
    bool grows = allocations_find(&told.entries, name, &entry) && entry.size < size;
    pthread_mutex_unlock(&lock);
    if (!grows) return;
    entry.size = size;
    tell(entry);
}

/* A new connection knows nothing yet; it hears of the last descriptor of each, and that these were all.
 * Whether it has. `lock` is held.
 */
static bool tell_again(void) {
    struct allocation entry, replaced;
    bool all = true;
    while (kept_pop(&told.entries, &entry)) {
        int row = account_row((uint32_t)entry.device);
        struct convgpu_exported body = body_of(&entry);
        body.device = (uint32_t)row;
        if (row >= 0 && entry.size > 0) all = channel_tell(CONVGPU_EXPORTED, &body, sizeof body) && all;
        (void)allocations_insert(&told.open, entry, &replaced);
    }
    while (kept_pop(&told.open, &entry)) (void)allocations_insert(&told.entries, entry, &replaced);
    struct convgpu_exported end = {.instance = CONVGPU_EXPORT_ALL};
    return channel_tell(CONVGPU_EXPORTED, &end, sizeof end) && all;
}

static void told_look(void) {
    uint32_t hears = account_hears_of_exports();
    bool is_new = hears != 0 && told_to != hears;
    if (told.count == 0 && (told_to == 0 || !is_new)) return; /* who never told of any has none */
    pthread_mutex_lock(&lock);
    lost = descriptors_lost();
    kept_reclaim(&told);
    if (is_new && tell_again()) told_to = hears;
    pthread_mutex_unlock(&lock);
}

static void told_reset(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (is_ours()) {
        close(instance);
        close(mark);
    }
    instance = mark = -1;
    generation = next_number = told_to = lost = 0;
    kept_reset(&told);
}
REGISTER_FAMILY(told, .reset = told_reset, .unkeep = told_look);
