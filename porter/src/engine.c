/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/driver.h"
#include "base/log.h"
#include "pool/growth.h"

#define MOST_DEVICES CONVGPU_CARRIER_DEVICES
#define DEPTH        8u /* pieces of one lane in flight: imports are hidden behind copies */

/* A piece on its way: its job, and where it is mapped. */
struct flight {
    struct job *job;
    CUmemHandle handle;
    CUdeviceptr address;
    CUevent done;
    uint64_t begin;
    bool mapped, copying; /* copying: `done` will say when it is over */
    uint32_t error;
};

/* Two threads: one imports pieces and starts their copies, the other waits for these and lets the pieces go.
 * The driver takes 0.3 to 1.5 ms for either while copies run both ways (H200), as long as a copy of 64 MiB
 * takes. */
struct lane {
    struct device *device;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *first, **last;
    unsigned open; /* jobs that are not finished */
    CUstream stream;
    CUdeviceptr window; /* DEPTH pieces of addresses */
    struct flight flight[DEPTH];
    unsigned oldest, count; /* flights that were started and not finished; under the lock */
    uint64_t last_end;      /* when the previous piece was finished */
};

struct device {
    CUdevice number;
    uint8_t uuid[16];
    CUcontext context;
    bool running;
    struct lane lane[2]; /* out, in */
};

static struct device devices[MOST_DEVICES];
static unsigned device_count;
static struct engine_hooks hooks;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

bool engine_start(const struct engine_hooks *given) {
    int count = 0;
    hooks = *given;
    CUresult result = cu.device_count(&count);
    for (int i = 0; result == CU_SUCCESS && i < count && device_count < MOST_DEVICES; i++) {
        struct device *device = &devices[device_count];
        result = cu.device_get(&device->number, i);
        if (result == CU_SUCCESS) result = cu.device_uuid(device->uuid, device->number);
        if (result == CU_SUCCESS) device_count++;
    }
    if (result != CU_SUCCESS) log_line("the devices cannot be listed: %s", driver_error(result));
    return result == CU_SUCCESS;
}

/* ---- one piece ----------------------------------------------------------------------------------------- */

/* Maps the memory behind the job's descriptor, which is the container's word: it must be memory of this
 * device, and of the size that it names, or the driver refuses to map it. */
static uint32_t import(struct lane *lane, struct flight *flight) {
    const struct device *device = lane->device;
    struct job *job = flight->job;
    struct cu_properties properties = {0};
    CUresult result = cu.import(&flight->handle, (void *)(intptr_t)job->descriptor, CU_POSIX_DESCRIPTOR);
    /* Anything else than a piece may wait in its last close: `finish` gets it. */
    if (result != CU_SUCCESS) return CONVGPU_CARRIER_ERROR_BAD_PIECE;
    close(job->descriptor); /* while it is open the driver counts the memory for nobody */
    job->descriptor = -1;
    result = cu.properties(&properties, flight->handle);
    bool own = properties.location.type == CU_LOCATION_DEVICE && properties.location.id == device->number;
    if (result == CU_SUCCESS && own) result = cu.map(flight->address, job->size, 0, flight->handle, 0);
    flight->mapped = result == CU_SUCCESS && own;
    if (!flight->mapped) return CONVGPU_CARRIER_ERROR_BAD_PIECE;
    struct cu_access access = {{CU_LOCATION_DEVICE, device->number}, CU_READ_WRITE};
    result = cu.set_access(flight->address, job->size, &access, 1);
    return result == CU_SUCCESS ? 0 : CONVGPU_CARRIER_ERROR_DRIVER;
}

static void let_go(struct flight *flight) {
    if (flight->mapped) cu.unmap(flight->address, flight->job->size);
    if (flight->handle != 0) cu.release(flight->handle);
    flight->mapped = false;
    flight->handle = 0;
}

static uint32_t find_copy(struct job *job) {
    if (job->in) {
        job->copy = pool_begin_in(&job->name, job->size, job->carrier);
        return job->copy != NULL ? 0 : CONVGPU_CARRIER_ERROR_NO_COPY;
    }
    job->copy = pool_begin_out(&job->name, job->size, job->most, job->carrier);
    return job->copy != NULL ? 0 : CONVGPU_CARRIER_ERROR_NO_ROOM;
}

static CUresult queue_copies(struct lane *lane, struct flight *flight) {
    const struct job *job = flight->job;
    unsigned parts = (unsigned)(job->size / POOL_UNIT);
    CUresult result = CU_SUCCESS;
    for (unsigned part = 0, run; part < parts && result == CU_SUCCESS; part += run) {
        run = pool_run(job->copy, part);
        void *host = pool_address(job->copy, part);
        CUdeviceptr device = flight->address + part * POOL_UNIT;
        result = job->in ? cu.copy_in(device, host, run * POOL_UNIT, lane->stream)
                         : cu.copy_out(host, device, run * POOL_UNIT, lane->stream);
    }
    return result == CU_SUCCESS ? cu.event_record(flight->done, lane->stream) : result;
}

/* An error of a copy may be the context's end; another porter makes another context. */
static void check_context(CUresult result) {
    log_line("a copy failed: %s", driver_error(result));
    if (cu.context_synchronize() == CU_SUCCESS) return;
    log_line("the context is lost");
    _exit(1);
}

/* Starts the copy of a piece, or says why it cannot be copied. */
static void begin(struct lane *lane, struct flight *flight, struct job *job) {
    flight->job = job;
    flight->begin = now();
    flight->copying = false;
    flight->error = hooks.wanted(job) ? import(lane, flight) : CONVGPU_CARRIER_ERROR_BAD_PIECE;
    if (flight->error == 0) flight->error = find_copy(job);
    if (flight->error != 0) return;
    CUresult result = queue_copies(lane, flight);
    flight->copying = result == CU_SUCCESS;
    if (flight->copying) return;
    check_context(result);
    flight->error = CONVGPU_CARRIER_ERROR_DRIVER;
}

static void finish(struct lane *lane, struct flight *flight) {
    if (flight->copying) {
        CUresult result = cu.event_synchronize(flight->done);
        if (result != CU_SUCCESS) {
            check_context(result);
            flight->error = CONVGPU_CARRIER_ERROR_DRIVER;
        }
    }
    uint64_t end = now(), begin = flight->begin > lane->last_end ? flight->begin : lane->last_end;
    let_go(flight);
    hooks.finish(flight->job, flight->error, end - begin);
    flight->job = NULL;
    lane->last_end = end;
}

/* ---- its threads --------------------------------------------------------------------------------------- */

static void enter(struct lane *lane) {
    if (cu.context_set(lane->device->context) != CU_SUCCESS) log_line("the context cannot be set");
    pthread_mutex_lock(&lane->lock);
}

static struct job *take(struct lane *lane) {
    struct job *job = lane->first;
    lane->first = job->next;
    if (lane->first == NULL) lane->last = &lane->first;
    return job;
}

static void *start_copies(void *argument) {
    struct lane *lane = argument;
    enter(lane);
    for (;;) {
        while (lane->first == NULL || lane->count == DEPTH) pthread_cond_wait(&lane->changed, &lane->lock);
        struct job *job = take(lane);
        struct flight *flight = &lane->flight[(lane->oldest + lane->count) % DEPTH];
        pthread_mutex_unlock(&lane->lock);
        begin(lane, flight, job);
        pthread_mutex_lock(&lane->lock);
        lane->count++;
        pthread_cond_broadcast(&lane->changed);
    }
    return NULL;
}

static void *finish_copies(void *argument) {
    struct lane *lane = argument;
    enter(lane);
    for (;;) {
        while (lane->count == 0) pthread_cond_wait(&lane->changed, &lane->lock);
        struct flight *flight = &lane->flight[lane->oldest];
        pthread_mutex_unlock(&lane->lock);
        finish(lane, flight);
        pthread_mutex_lock(&lane->lock);
        lane->oldest = (lane->oldest + 1) % DEPTH;
        lane->count--;
        lane->open--;
        pthread_cond_broadcast(&lane->changed);
    }
    return NULL;
}

static CUresult prepare_lane(struct device *device, struct lane *lane) {
    lane->device = device;
    lane->last = &lane->first;
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->changed, NULL);
    CUresult result = cu.stream_create(&lane->stream, CU_STREAM_NON_BLOCKING);
    if (result == CU_SUCCESS) result = cu.reserve(&lane->window, DEPTH * CONVGPU_PIECE_SIZE, 0, 0, 0);
    for (unsigned i = 0; i < DEPTH && result == CU_SUCCESS; i++) {
        lane->flight[i].address = lane->window + i * CONVGPU_PIECE_SIZE;
        result = cu.event_create(&lane->flight[i].done, CU_EVENT_DISABLE_TIMING);
    }
    return result;
}

static bool start(struct device *device) {
    CUresult result = cu.context_retain(&device->context, device->number);
    if (result == CU_SUCCESS) result = cu.context_set(device->context);
    for (unsigned i = 0; i < 2 && result == CU_SUCCESS; i++) result = prepare_lane(device, &device->lane[i]);
    if (result != CU_SUCCESS) {
        log_line("device %d cannot be used: %s", device->number, driver_error(result));
        return false;
    }
    growth_context(device->context);
    for (unsigned i = 0; i < 4; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, NULL, i < 2 ? start_copies : finish_copies, &device->lane[i % 2]);
        if (error == 0) continue;
        log_line("no thread for device %d: %s", device->number, strerror(error));
        _exit(1);
    }
    return true;
}

struct device *engine_device(const uint8_t *uuid) {
    for (unsigned i = 0; i < device_count; i++) {
        struct device *device = &devices[i];
        if (memcmp(device->uuid, uuid, sizeof device->uuid) != 0) continue;
        if (!device->running) device->running = start(device);
        return device->running ? device : NULL;
    }
    return NULL;
}

void engine_submit(struct device *device, struct job *job) {
    struct lane *lane = &device->lane[job->in];
    job->next = NULL;
    pthread_mutex_lock(&lane->lock);
    *lane->last = job;
    lane->last = &job->next;
    lane->open++;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
}

void engine_finish(void) {
    for (unsigned i = 0; i < 2 * device_count; i++) {
        struct lane *lane = &devices[i / 2].lane[i % 2];
        if (!devices[i / 2].running) continue;
        pthread_mutex_lock(&lane->lock);
        while (lane->open > 0) pthread_cond_wait(&lane->changed, &lane->lock);
        pthread_mutex_unlock(&lane->lock);
    }
}
