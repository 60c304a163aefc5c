/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/closer.h"
#include "base/log.h"
#include "base/proc.h"
#include "checkpoint.h"
#include "control.h"

#define PACKETS_AT_ONCE 32 /* of one carrier, before others have their turn */

struct process {
    struct owner owner;
    int pidfd;
    uint64_t session; /* 0: known only from the pool */
    uint64_t newest;  /* session of the last SESSION, whose carrier may have to wait */
    uint64_t most;    /* bytes of copies that it may have */
    unsigned device_count;
    uint8_t uuid[CONVGPU_CARRIER_DEVICES][16];
    bool ended;
    struct packet
        next; /* SESSION that waits until the jobs of the carrier before it are finished; size 0: none */
    struct process *other;

    pthread_mutex_t lock; /* guards what follows: copy engines answer on the carrier */
    int carrier;          /* -1: none */
    uint64_t carrier_number;
    unsigned jobs, closing; /* closing: descriptors that it handed over */
    bool broken;            /* an answer could not be sent */
};

static struct process *processes;
static struct process_loop loop;
static uint64_t last_carrier;

void process_start(const struct process_loop *given) {
    loop = *given;
}

/* ---- what any thread does ------------------------------------------------------------------------------ */

/* No lane and not the main thread does the last close of what a container made. Its next carrier waits until
 * all of that is closed, so a process has never more descriptors here than one carrier brings. */
static void hand_to_closer(struct process *process, int descriptor) {
    if (descriptor < 0) return;
    pthread_mutex_lock(&process->lock);
    process->closing++;
    pthread_mutex_unlock(&process->lock);
    closer_take(descriptor, process);
}

void process_closed(void *pointer) {
    struct process *process = pointer;
    pthread_mutex_lock(&process->lock);
    process->closing--;
    pthread_mutex_unlock(&process->lock);
    loop.poke();
}

static void end_carrier(struct process *process, int carrier) {
    shutdown(carrier, SHUT_RDWR); /* nothing comes into its queue any more */
    hand_to_closer(process, carrier);
}

/* Never waits for a container: whoever keeps to the depth has room for all answers in its socket. */
static bool answer(struct process *process, uint64_t carrier, const struct convgpu_piece *frame) {
    pthread_mutex_lock(&process->lock);
    bool sent = process->carrier >= 0 && process->carrier_number == carrier && !process->broken &&
                send(process->carrier, frame, sizeof *frame, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof *frame;
    if (!sent && process->carrier_number == carrier) process->broken = true;
    pthread_mutex_unlock(&process->lock);
    return sent;
}

static void answer_failed(struct process *process, uint64_t carrier, const struct convgpu_piece *asked,
                          uint32_t error) {
    struct convgpu_piece frame = *asked;
    frame.kind = CONVGPU_CARRIER_FAILED;
    frame.failed = asked->kind;
    frame.error = error;
    (void)answer(process, carrier, &frame);
}

static bool job_wanted(const struct job *job) {
    struct process *process = job->process;
    pthread_mutex_lock(&process->lock);
    bool wanted = process->carrier >= 0 && process->carrier_number == job->carrier && !process->broken;
    pthread_mutex_unlock(&process->lock);
    return wanted;
}

static void finish_job(struct job *job, uint32_t error, uint64_t nanoseconds) {
    struct process *process = job->process;
    struct convgpu_piece frame = {
        .kind = job->in ? CONVGPU_CARRIER_IN : CONVGPU_CARRIER_OUT,
        .device = job->row,
        .piece = job->name.piece,
        .size = job->size,
    };
    if (job->copy != NULL && !job->in) pool_end_out(job->copy, error == 0);
    if (error == 0) {
        /* Before the answer: the scheduler believes what the process then says only if it has read this. */
        control_moved(&(struct convgpu_moved){.kind = CONVGPU_PORTER_MOVED,
                                              .session = process->session,
                                              .device = job->row,
                                              .size = job->size,
                                              .in = job->in,
                                              .nanoseconds = nanoseconds});
        frame.kind = job->in ? CONVGPU_CARRIER_FILLED : CONVGPU_CARRIER_COPIED;
        bool sent = answer(process, job->carrier, &frame);
        if (job->in) pool_end_in(job->copy, sent);
    } else {
        if (job->in && job->copy != NULL) pool_end_in(job->copy, false);
        answer_failed(process, job->carrier, &frame, error);
    }
    hand_to_closer(process, job->descriptor);
    pthread_mutex_lock(&process->lock);
    bool last = --process->jobs == 0 || process->broken;
    pthread_mutex_unlock(&process->lock);
    free(job);
    if (last) loop.poke();
}

const struct engine_hooks process_engine_hooks = {job_wanted, finish_job};

/* ---- the main thread ----------------------------------------------------------------------------------- */

static void close_carrier(struct process *process) {
    pthread_mutex_lock(&process->lock);
    int carrier = process->carrier;
    process->carrier = -1;
    process->carrier_number = 0;
    process->broken = false;
    pthread_mutex_unlock(&process->lock);
    if (carrier < 0) return;
    loop.unwatch(carrier);
    end_carrier(process, carrier);
}

static void break_carrier(struct process *process, const char *why) {
    log_line("the carrier of pid %u is closed: %s", process->owner.pid, why);
    close_carrier(process);
    control_gone(CONVGPU_PORTER_BROKEN, process->session, 0);
}

static bool name_of(const struct process *process, const struct convgpu_piece *frame,
                    struct copy_name *name) {
    if (frame->device >= process->device_count) return false;
    *name = (struct copy_name){.owner = process->owner, .piece = frame->piece};
    memcpy(name->device, process->uuid[frame->device], sizeof name->device);
    return frame->size > 0 && frame->size <= CONVGPU_PIECE_SIZE && frame->size % POOL_UNIT == 0;
}

static unsigned jobs_of(struct process *process) {
    pthread_mutex_lock(&process->lock);
    unsigned jobs = process->jobs;
    pthread_mutex_unlock(&process->lock);
    return jobs;
}

static bool submit(struct process *process, const struct convgpu_piece *frame, const struct copy_name *name,
                   struct packet *packet) {
    struct device *device = engine_device(name->device);
    struct job *job = device != NULL ? calloc(1, sizeof *job) : NULL;
    if (job == NULL) return false;
    *job = (struct job){
        .process = process,
        .name = *name,
        .most = process->most,
        .carrier = process->carrier_number,
        .size = frame->size,
        .row = frame->device,
        .descriptor = packet_take(packet, 0),
        .in = frame->kind == CONVGPU_CARRIER_IN,
    };
    pthread_mutex_lock(&process->lock);
    process->jobs++;
    pthread_mutex_unlock(&process->lock);
    engine_submit(device, job);
    return true;
}

/* OUT and IN. Returns 0 or why the frame failed. IN is asserted at once: READY may come before its turn. */
static uint32_t move(struct process *process, const struct convgpu_piece *frame, const struct copy_name *name,
                     struct packet *packet) {
    if (packet->count == 0) return CONVGPU_CARRIER_ERROR_BAD_PIECE;
    if (frame->kind == CONVGPU_CARRIER_IN && !pool_assert(name, frame->size, process->carrier_number))
        return CONVGPU_CARRIER_ERROR_NO_COPY;
    return submit(process, frame, name, packet) ? 0 : CONVGPU_CARRIER_ERROR_DRIVER;
}

static void forget(struct process *process, const struct convgpu_piece *frame, const struct copy_name *name) {
    uint64_t size = pool_forget(name);
    if (size == 0) return;
    control_moved(&(struct convgpu_moved){
        .kind = CONVGPU_PORTER_DROPPED, .session = process->session, .device = frame->device, .size = size});
}

/* Whether this is still the process's carrier once the scheduler has been heard: it allows a process to put
 * memory out, on the one socket, before it orders that, on another one. */
static bool is_current(const struct process *process) {
    uint64_t carrier = process->carrier_number;
    loop.hear();
    return process->carrier_number == carrier;
}

/* Handles one frame; returns why the carrier has to be closed, or NULL. */
static const char *receive(struct process *process, struct packet *packet) {
    const struct convgpu_piece *frame = (const struct convgpu_piece *)packet->bytes;
    struct copy_name name;
    uint32_t error = 0;
    if (packet->size != sizeof *frame) return "a packet of another size than a frame";
    if (packet->count > (frame->kind == CONVGPU_CARRIER_OUT || frame->kind == CONVGPU_CARRIER_IN))
        return "descriptors that nobody asked for";
    if (frame->kind == CONVGPU_CARRIER_OUT && !is_current(process)) return NULL;
    if (frame->kind == CONVGPU_CARRIER_READY) {
        pool_sweep(process->owner, process->carrier_number);
        return NULL;
    }
    bool valid = name_of(process, frame, &name);
    switch (frame->kind) {
    case CONVGPU_CARRIER_OUT:
    case CONVGPU_CARRIER_IN:
        if (jobs_of(process) >= CONVGPU_CARRIER_DEPTH) return "too many pieces without an answer";
        error = valid ? move(process, frame, &name, packet) : CONVGPU_CARRIER_ERROR_BAD_PIECE;
        break;
    case CONVGPU_CARRIER_HELD:
        if (!valid || !pool_assert(&name, frame->size, process->carrier_number))
            error = CONVGPU_CARRIER_ERROR_NO_COPY;
        break;
    case CONVGPU_CARRIER_FORGET:
        if (valid) forget(process, frame, &name);
        break;
    default:
        return "a frame of an unknown kind";
    }
    if (error != 0) answer_failed(process, process->carrier_number, frame, error);
    return NULL;
}

static void read_carrier(struct process *process) {
    uint64_t carrier = process->carrier_number;
    for (int i = 0; i < PACKETS_AT_ONCE && process->carrier_number == carrier; i++) {
        struct packet packet;
        enum packet_outcome outcome = packet_read(process->carrier, &packet);
        const char *fault = outcome == PACKET_READ ? receive(process, &packet) : NULL;
        for (unsigned each = 0; each < packet.count; each++)
            hand_to_closer(process, packet_take(&packet, each));
        if (outcome == PACKET_NONE) return;
        if (outcome == PACKET_END) {
            close_carrier(process);
            return;
        }
        if (fault != NULL) {
            break_carrier(process, fault);
            return;
        }
    }
}

/* An event may belong to a descriptor of the same number that was closed since. */
void process_event(void *pointer, int descriptor) {
    struct process *process = pointer;
    if (descriptor == process->carrier) {
        read_carrier(process);
    } else if (descriptor == process->pidfd && proc_has_ended(process->pidfd)) {
        loop.unwatch(process->pidfd);
        close_carrier(process);
        process->ended = true;
        loop.poke();
    }
}

/* ---- begin and end of processes ------------------------------------------------------------------------ */

static struct process *find(struct owner owner) {
    struct process *process = processes;
    while (process != NULL && (process->owner.pid != owner.pid || process->owner.started != owner.started))
        process = process->other;
    return process;
}

static struct process *add(struct owner owner, int pidfd) {
    struct process *process = calloc(1, sizeof *process);
    if (process == NULL) {
        close(pidfd);
        return NULL;
    }
    process->owner = owner;
    process->pidfd = pidfd;
    process->carrier = -1;
    pthread_mutex_init(&process->lock, NULL);
    process->other = processes;
    processes = process;
    loop.watch(pidfd, process);
    return process;
}

void process_adopt(struct owner owner) {
    if (find(owner) != NULL) return;
    int pidfd = proc_open(owner.pid, owner.started);
    if (pidfd >= 0 && add(owner, pidfd) != NULL) return;
    uint64_t freed = pool_sweep(owner, 0);
    if (freed == 0) return; /* it had several copies */
    log_line("pid %u has ended: %llu MiB of its copies are freed", owner.pid,
             (unsigned long long)freed >> 20);
    control_gone(CONVGPU_PORTER_GONE, 0, freed);
}

/* Begins the carrier that waits in `next`. */
static void open_carrier(struct process *process) {
    const struct convgpu_session *session = (const struct convgpu_session *)process->next.bytes;
    process->session = session->session;
    process->device_count = session->device_count;
    memcpy(process->uuid, session + 1, session->device_count * sizeof process->uuid[0]);
    for (unsigned i = 0; i < process->device_count; i++)
        (void)engine_device(process->uuid[i]); /* makes its context ahead */
    pthread_mutex_lock(&process->lock);
    process->carrier = process->next.descriptor[0];
    process->carrier_number = ++last_carrier;
    pthread_mutex_unlock(&process->lock);
    process->next.size = 0;
    loop.watch(process->carrier, process);
    checkpoint_adopt(process->session, (int)process->owner.pid);
}

bool process_session(struct packet *packet) {
    const struct convgpu_session *session = (const struct convgpu_session *)packet->bytes;
    bool valid =
        packet->size >= sizeof *session && session->device_count <= CONVGPU_CARRIER_DEVICES &&
        packet->size == sizeof *session + session->device_count * sizeof(struct convgpu_carrier_device) &&
        packet->count == 2;
    if (!valid) return false;
    struct owner owner = {session->pid, session->started};
    struct process *process = find(owner);
    int pidfd = packet_take(packet, 1);
    if (process != NULL) close(pidfd);
    if (process == NULL) process = add(owner, pidfd);
    if (process == NULL) return true; /* no memory: the process sees its carrier end */
    process->newest = session->session;
    process->most = session->most;
    close_carrier(process);
    if (process->next.size > 0) end_carrier(process, process->next.descriptor[0]);
    process->next = *packet;
    (void)packet_take(packet, 0);
    loop.poke();
    return true;
}

void process_allow(const struct convgpu_allow *allow) {
    for (struct process *process = processes; process != NULL; process = process->other)
        if (process->newest == allow->session) process->most = allow->most;
}

void process_checkpoint(const struct convgpu_checkpoint *order) {
    process_settle(); /* its SESSION may have come just before */
    const struct process *process = processes;
    while (process != NULL && process->session != order->session) process = process->other;
    if (process != NULL) checkpoint_begin(order->session, (int)process->owner.pid, order->restore);
}

static void remove_process(struct process **link) {
    struct process *process = *link;
    *link = process->other;
    uint64_t freed = pool_sweep(process->owner, 0);
    close(process->pidfd);
    control_gone(CONVGPU_PORTER_GONE, process->session, freed);
    pthread_mutex_destroy(&process->lock);
    free(process);
}

void process_settle(void) {
    for (struct process **link = &processes; *link != NULL;) {
        struct process *process = *link;
        pthread_mutex_lock(&process->lock);
        bool broken = process->broken && process->carrier >= 0;
        pthread_mutex_unlock(&process->lock);
        if (broken) break_carrier(process, "it does not read its answers");
        if (process->ended && process->next.size > 0) {
            process->next.size = 0;
            end_carrier(process, process->next.descriptor[0]);
        }
        pthread_mutex_lock(&process->lock);
        bool quiet = process->jobs == 0 && process->closing == 0;
        pthread_mutex_unlock(&process->lock);
        if (quiet && process->ended) {
            remove_process(link);
            continue;
        }
        if (quiet && process->next.size > 0) open_carrier(process);
        link = &process->other;
    }
}
