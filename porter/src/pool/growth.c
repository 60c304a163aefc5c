/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/growth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "pool/units.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
#define MOST_THREADS 16
#define HOST_RESERVE (UINT64_C(512) << 20) /* bytes that the host has left after each step */

static pthread_cond_t changed_target = PTHREAD_COND_INITIALIZER;
static uint64_t target;               /* units */
static uint32_t registered;           /* units, from the first on */
static uint32_t leaving = UNITS_MOST; /* units from here on are being given back */
static uint32_t last_error;
static CUcontext context;
static void (*report)(void);

void growth_wake(void) {
    if (target < units_count()) pthread_cond_signal(&changed_target);
}

void growth_context(CUcontext made) {
    pthread_mutex_lock(&pool_lock);
    if (context == NULL) context = made;
    pthread_cond_signal(&changed_target);
    pthread_mutex_unlock(&pool_lock);
}

void pool_resize(uint64_t size) {
    pthread_mutex_lock(&pool_lock);
    target = size / POOL_UNIT < units_most() ? size / POOL_UNIT : units_most();
    last_error = 0;
    uint32_t end = units_count() < leaving ? units_count() : leaving;
    units_return(target < end ? (uint32_t)target : end);
    pthread_cond_signal(&changed_target);
    pthread_mutex_unlock(&pool_lock);
}

struct pool_figures pool_figures(void) {
    pthread_mutex_lock(&pool_lock);
    uint64_t size = registered < target ? registered : target;
    struct pool_figures figures = {size * POOL_UNIT, units_used() * POOL_UNIT, last_error};
    pthread_mutex_unlock(&pool_lock);
    return figures;
}

/* ---- pages --------------------------------------------------------------------------------------------- */

struct slice {
    pthread_t thread;
    char *begin;
    size_t size;
    int error;
};

static void *populate_slice(void *argument) {
    struct slice *slice = argument;
    if (madvise(slice->begin, slice->size, MADV_POPULATE_WRITE) != 0) slice->error = errno;
    return NULL;
}

/* Has the kernel make the pages, which it does one page after another in each thread. Returns 0 or an errno.
 */
static int populate(char *begin, size_t size) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t threads = cores < 1 ? 1 : cores > MOST_THREADS ? MOST_THREADS : (size_t)cores, started = 0;
    size_t step = (size / threads + POOL_UNIT - 1) / POOL_UNIT * POOL_UNIT;
    struct slice slices[MOST_THREADS] = {{0}};
    int error = 0;
    for (size_t at = 0; at < size && error == 0; at += step) {
        struct slice *slice = &slices[started];
        *slice = (struct slice){.begin = begin + at, .size = size - at < step ? size - at : step};
        error = pthread_create(&slice->thread, NULL, populate_slice, slice);
        if (error == 0) started++;
    }
    for (size_t i = 0; i < started; i++) {
        pthread_join(slices[i].thread, NULL);
        if (slices[i].error != 0) error = slices[i].error;
    }
    if (error == EINVAL) return 0;           /* an older kernel makes the pages when the driver pins them */
    return error == EFAULT ? ENOSPC : error; /* the file system is full */
}

/* The host would be short of memory: its killer would choose somebody else. */
static bool host_has(uint64_t size) {
    char line[128];
    unsigned long long available = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &available) == 1) break;
    if (file != NULL) fclose(file);
    return available == 0 || available * 1024 >= size + HOST_RESERVE;
}

/* ---- steps; pool_lock is held at their begin and end ----------------------------------------------------
 */

static void fail(uint32_t error, const char *text) {
    last_error = error;
    log_line("the pool stays at %llu MiB: %s", (unsigned long long)(registered * POOL_UNIT >> 20), text);
}

/* What the driver says, as an errno. */
static uint32_t error_of(CUresult result) {
    return result == CU_OUT_OF_MEMORY ? ENOMEM : EIO;
}

/* Registers units from `registered` on; they are mapped and have pages, or get them now. */
static bool register_units(uint32_t added) {
    void *begin = units_address(registered);
    pthread_mutex_unlock(&pool_lock);
    CUresult result = cu.host_register(begin, added * POOL_UNIT, CU_REGISTER_PORTABLE);
    pthread_mutex_lock(&pool_lock);
    if (result != CU_SUCCESS) fail(error_of(result), driver_error(result));
    if (result == CU_SUCCESS) {
        units_mark_registration(registered, true);
        registered += added;
    }
    return result == CU_SUCCESS;
}

/* The next part to register, up to `end`. */
static uint32_t next_part(uint64_t end) {
    return end - registered < PART_UNITS ? (uint32_t)end - registered : PART_UNITS;
}

static bool grow(void) {
    uint32_t first = registered, added = next_part(target);
    if (!host_has(added * POOL_UNIT)) {
        fail(ENOMEM, "the host has too little memory left");
        return false;
    }
    int error = units_resize(first + added);
    if (error == 0) {
        pthread_mutex_unlock(&pool_lock);
        error = populate(units_address(first), added * POOL_UNIT);
        pthread_mutex_lock(&pool_lock);
        if (error != 0) (void)units_resize(first);
    }
    if (error != 0) {
        fail((uint32_t)error, strerror(error));
        return false;
    }
    if (!register_units(added)) {
        (void)units_resize(first);
        return false;
    }
    units_add(first, added);
    return true;
}

/* Gives the last registration back, as a whole, when no copy lies in it. */
static bool shrink(void) {
    uint32_t first = registered - 1;
    while (!units_begins_registration(first)) first--;
    bool unused = units_withdraw((uint32_t)target, registered - (uint32_t)target);
    if (first < target || !unused) unused = first >= target && units_withdraw(first, registered - first);
    if (!unused) return false;
    void *begin = units_address(first);
    leaving = first;
    pthread_mutex_unlock(&pool_lock);
    CUresult result = cu.host_unregister(begin);
    pthread_mutex_lock(&pool_lock);
    leaving = UNITS_MOST;
    if (result != CU_SUCCESS) {
        fail(error_of(result), driver_error(result));
        return false;
    }
    units_mark_registration(first, false);
    registered = first;
    (void)units_resize(first);
    return true;
}

/* Gives an earlier porter's memory back when no copy lies in it; nothing of it is registered yet. */
static bool shorten(void) {
    uint32_t there = units_count();
    if (target >= there || !units_withdraw((uint32_t)target, there - (uint32_t)target)) return false;
    return units_resize((uint32_t)target) == 0;
}

/* One step towards the target; false: there is none to make now. */
static bool step(void) {
    if (last_error != 0) return false;
    if (context == NULL) return shorten();
    if (registered < units_count()) return register_units(next_part(units_count()));
    if (registered < target) return grow();
    if (registered > target) return shrink();
    return false;
}

static void *run(void *unused) {
    bool current = false;
    pthread_mutex_lock(&pool_lock);
    for (;;) {
        if (context != NULL && !current) current = cu.context_set(context) == CU_SUCCESS;
        bool done = step();
        if (done || last_error != 0) report();
        if (!done) pthread_cond_wait(&changed_target, &pool_lock);
    }
    return unused;
}

bool growth_start(void (*changed)(void)) {
    pthread_t thread;
    report = changed;
    target = units_count();
    int error = pthread_create(&thread, NULL, run, NULL);
    if (error != 0) log_line("no thread for the pool: %s", strerror(error));
    return error == 0;
}
