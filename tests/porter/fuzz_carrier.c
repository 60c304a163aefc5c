/* SPDX-License-Identifier: Apache-2.0
 *
 * Whatever a container says to the porter on its carrier: the porter's reader and its pool, fed with packets,
 * with copy engines that are stepped by the input. What it answers, what of the pool is in use and what it
 * reports is compared with a model of hook/include/convgpu/carrier.h. For libFuzzer, or with -DFUZZ_MAIN
 * (fuzz_main.h).
 *
 * A frame of the input is its size, bits that say what happens beside it, and the packet. The process has
 * three devices, of which the porter does not know the last. Another process has a copy of a piece of the
 * same name all the while.
 */
#include "../../porter/src/process.c"

#include "pool/units.h"

#include <sys/eventfd.h>

enum { FUZZ_READERS = 1, DEVICES = 3, KNOWN_DEVICES = 2, POOL_UNITS = 128, MOST_COPIES = 128 };
enum { WITH_DESCRIPTOR = 1, BEGIN_JOBS = 2, FINISH_JOBS = 4, FAIL_COPIES = 8, RECONNECT = 16 };
static const uint64_t SHARE = 80 * POOL_UNIT;

#include "../hook/programs/checks/fuzz_main.h"

/* ---- the model ----------------------------------------------------------------------------------------- */

struct model_copy {
    bool there, complete, busy, doomed;
    uint32_t device;
    uint64_t piece, size, asserted;
};

struct model_job {
    struct job *real;
    struct convgpu_piece asked;
    uint64_t carrier;
    struct model_copy *copy;
    uint32_t error;
    bool begun;
};

static struct model_copy copies[MOST_COPIES];
static struct model_job jobs[CONVGPU_CARRIER_DEPTH];
static unsigned job_count;
static struct convgpu_piece expected[CONVGPU_CARRIER_DEPTH + 1]; /* answers */
static unsigned expected_count, broken, expected_broken;
static uint64_t carrier;                     /* its number; 0: it is closed */
static uint64_t moved[3], expected_moved[3]; /* out, in, dropped */
static struct process *process;
static int container = -1; /* its end of the carrier */

static struct model_copy *model_find(uint32_t device, uint64_t piece) {
    for (int index = 0; index < MOST_COPIES; index++) {
        struct model_copy *copy = &copies[index];
        if (copy->there && !copy->doomed && copy->device == device && copy->piece == piece) return copy;
    }
    return NULL;
}

static uint64_t model_sum(void) {
    uint64_t sum = 0;
    for (int index = 0; index < MOST_COPIES; index++) sum += copies[index].there ? copies[index].size : 0;
    return sum;
}

static void model_drop(struct model_copy *copy) {
    if (copy->busy)
        copy->doomed = true;
    else
        copy->there = false;
}

static void expect_answer(const struct convgpu_piece *asked, uint64_t on, uint32_t kind, uint32_t error) {
    if (on != carrier) return; /* nobody gets it */
    struct convgpu_piece answer = *asked;
    answer.kind = kind;
    if (kind == CONVGPU_CARRIER_FAILED) answer.failed = asked->kind, answer.error = error;
    expected[expected_count++] = answer;
}

static uint32_t model_begin_out(struct model_job *job) {
    const struct convgpu_piece *asked = &job->asked;
    struct model_copy *copy = model_find(asked->device, asked->piece);
    if (copy && copy->busy) return CONVGPU_CARRIER_ERROR_NO_ROOM;
    if (copy) copy->there = false;
    bool room =
        model_sum() + asked->size <= SHARE && model_sum() + asked->size + POOL_UNIT <= POOL_UNITS * POOL_UNIT;
    if (!room) return CONVGPU_CARRIER_ERROR_NO_ROOM;
    for (copy = copies; copy->there;) copy++;
    *copy = (struct model_copy){true, false, true, false, asked->device, asked->piece, asked->size, carrier};
    job->copy = copy;
    return 0;
}

static uint32_t model_begin(struct model_job *job) {
    const struct convgpu_piece *asked = &job->asked;
    if (job->carrier != carrier) return CONVGPU_CARRIER_ERROR_BAD_PIECE;
    if (asked->kind == CONVGPU_CARRIER_OUT) return model_begin_out(job);
    struct model_copy *copy = model_find(asked->device, asked->piece);
    if (!copy || !copy->complete || copy->busy || copy->size != asked->size)
        return CONVGPU_CARRIER_ERROR_NO_COPY;
    copy->asserted = carrier;
    copy->busy = true;
    job->copy = copy;
    return 0;
}

static void model_finish(struct model_job *job) {
    bool in = job->asked.kind == CONVGPU_CARRIER_IN, done = job->error == 0;
    struct model_copy *copy = job->copy;
    if (done) expected_moved[in] += job->asked.size;
    if (copy) {
        copy->busy = false;
        copy->complete |= done && !in && !copy->doomed;
        bool gone = in ? done && job->carrier == carrier : !done;
        if (gone || copy->doomed) copy->there = false;
    }
    struct convgpu_piece asked = job->asked;
    asked.failed = asked.error = 0;
    uint32_t kind = !done ? CONVGPU_CARRIER_FAILED : in ? CONVGPU_CARRIER_FILLED : CONVGPU_CARRIER_COPIED;
    expect_answer(&asked, job->carrier, kind, job->error);
}

static bool model_valid(const struct convgpu_piece *frame) {
    return frame->device < DEVICES && frame->size > 0 && frame->size <= CONVGPU_PIECE_SIZE &&
           frame->size % CONVGPU_PIECE_GRANULE == 0;
}

/* Why OUT or IN fails at once; 0: it became a job. */
static uint32_t model_move(const struct convgpu_piece *frame, bool descriptor) {
    if (!model_valid(frame) || !descriptor) return CONVGPU_CARRIER_ERROR_BAD_PIECE;
    struct model_copy *copy = model_find(frame->device, frame->piece);
    bool there = copy && copy->complete && copy->size == frame->size;
    if (frame->kind == CONVGPU_CARRIER_IN && !there) return CONVGPU_CARRIER_ERROR_NO_COPY;
    if (frame->kind == CONVGPU_CARRIER_IN) copy->asserted = carrier;
    if (frame->device >= KNOWN_DEVICES) return CONVGPU_CARRIER_ERROR_DRIVER;
    jobs[job_count] = (struct model_job){.real = jobs[job_count].real, .asked = *frame, .carrier = carrier};
    job_count++;
    return 0;
}

/* False: the carrier is closed. */
static bool model_frame(const struct convgpu_piece *frame, bool descriptor) {
    struct model_copy *copy = model_valid(frame) ? model_find(frame->device, frame->piece) : NULL;
    bool there = copy && copy->complete && copy->size == frame->size;
    bool moves = frame->kind == CONVGPU_CARRIER_OUT || frame->kind == CONVGPU_CARRIER_IN;
    uint32_t error = 0;
    if (descriptor && !moves) return false;
    switch (frame->kind) {
    case CONVGPU_CARRIER_READY:
        for (int index = 0; index < MOST_COPIES; index++)
            if (copies[index].there && copies[index].asserted != carrier) model_drop(&copies[index]);
        return true;
    case CONVGPU_CARRIER_OUT:
    case CONVGPU_CARRIER_IN:
        if (job_count >= CONVGPU_CARRIER_DEPTH) return false;
        error = model_move(frame, descriptor);
        break;
    case CONVGPU_CARRIER_HELD:
        if (there) copy->asserted = carrier;
        error = there ? 0 : CONVGPU_CARRIER_ERROR_NO_COPY;
        break;
    case CONVGPU_CARRIER_FORGET:
        if (copy && copy->complete) expected_moved[2] += copy->size;
        if (copy) model_drop(copy);
        return true;
    default:
        return false;
    }
    if (error) expect_answer(frame, carrier, CONVGPU_CARRIER_FAILED, error);
    return true;
}

/* ---- what the porter's reader uses of the rest --------------------------------------------------------- */

void log_line(const char *format, ...) {
    (void)format;
}

void control_moved(const struct convgpu_moved *report) {
    FUZZ_CHECK(report->device < DEVICES && report->session == 1 && report->size > 0);
    moved[report->kind == CONVGPU_PORTER_DROPPED ? 2 : report->in] += report->size;
}

void control_gone(uint32_t kind, uint64_t session, uint64_t size) {
    FUZZ_CHECK(kind == CONVGPU_PORTER_BROKEN && session == 1 && size == 0);
    broken++;
}

void checkpoint_begin(uint64_t session, int pid, bool restore) {
    (void)session, (void)pid, (void)restore;
}

void checkpoint_adopt(uint64_t session, int pid) {
    (void)session, (void)pid;
}

void growth_wake(void) {}

struct device *engine_device(const uint8_t *uuid) {
    static char known[KNOWN_DEVICES];
    return uuid[0] < KNOWN_DEVICES ? (struct device *)&known[uuid[0]] : NULL;
}

static unsigned real_count;

void engine_submit(struct device *device, struct job *job) {
    (void)device;
    FUZZ_CHECK(real_count < CONVGPU_CARRIER_DEPTH);
    jobs[real_count++].real = job;
}

static void watch(int descriptor, void *of) {
    (void)descriptor;
    process = of;
}

static void unwatch(int descriptor) {
    (void)descriptor;
}

static void poke(void) {}

static void hear(void) {}

void closer_take(int descriptor, void *of) {
    close(descriptor);
    process_closed(of);
}

/* ---- one input ----------------------------------------------------------------------------------------- */

/* As engine.c does it, whose import is left out. */
static void begin_jobs(void) {
    for (unsigned index = 0; index < job_count; index++) {
        struct model_job *job = &jobs[index];
        struct job *real = job->real;
        if (job->begun) continue;
        job->begun = true;
        job->error = model_begin(job);
        bool wanted = process_engine_hooks.wanted(real);
        if (wanted && real->in) real->copy = pool_begin_in(&real->name, real->size, real->carrier);
        if (wanted && !real->in)
            real->copy = pool_begin_out(&real->name, real->size, real->most, real->carrier);
        FUZZ_CHECK(wanted == (job->carrier == carrier) && (real->copy != NULL) == (job->copy != NULL));
    }
}

static void finish_jobs(bool fail) {
    for (unsigned index = 0; index < job_count; index++) {
        struct model_job *job = &jobs[index];
        if (job->copy && fail) job->error = CONVGPU_CARRIER_ERROR_DRIVER;
        model_finish(job);
        process_engine_hooks.finish(job->real, job->error, 0);
    }
    job_count = real_count = 0;
}

static void compare(void) {
    struct convgpu_piece answer;
    for (unsigned index = 0; index < expected_count; index++) {
        FUZZ_CHECK(recv(container, &answer, sizeof answer, MSG_DONTWAIT) == sizeof answer);
        FUZZ_CHECK(memcmp(&answer, &expected[index], sizeof answer) == 0);
    }
    expected_count = 0;
    bool silent = recv(container, &answer, sizeof answer, MSG_DONTWAIT) <= 0;
    FUZZ_CHECK(silent && (process->carrier < 0) == (carrier == 0) && broken == expected_broken);
    FUZZ_CHECK(job_count == real_count && process->jobs == job_count);
    FUZZ_CHECK(units_used() * POOL_UNIT == model_sum() + POOL_UNIT); /* the other process's */
    FUZZ_CHECK(memcmp(moved, expected_moved, sizeof moved) == 0);
}

static void run_jobs(bool fail) {
    begin_jobs();
    compare();
    finish_jobs(fail);
    compare();
}

static void reconnect(void) {
    struct packet packet = {.size = sizeof(struct convgpu_session) +
                                    DEVICES * sizeof(struct convgpu_carrier_device)};
    struct convgpu_session session = {.kind = CONVGPU_PORTER_SESSION,
                                      .pid = 1,
                                      .session = 1,
                                      .started = 7,
                                      .most = SHARE,
                                      .device_count = DEVICES};
    int ends[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    memcpy(packet.bytes, &session, sizeof session);
    for (uint8_t row = 0; row < DEVICES; row++) packet.bytes[sizeof session + 16 * row] = (char)row;
    packet.descriptor[0] = ends[1];
    packet.descriptor[1] = eventfd(0, EFD_CLOEXEC);
    packet.count = 2;
    FUZZ_CHECK(process_session(&packet));
    if (container >= 0) close(container);
    container = ends[0];
    carrier = 0;
    begin_jobs();
    finish_jobs(false);
    process_settle();
    carrier = process->carrier_number;
    compare();
}

static void say(const uint8_t *bytes, size_t size, bool descriptor) {
    static int something = -1;
    if (something < 0) something = eventfd(0, EFD_CLOEXEC);
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof something), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &something, sizeof something);
    }
    FUZZ_CHECK(sendmsg(container, &message, MSG_NOSIGNAL) == (ssize_t)size);
    struct convgpu_piece frame;
    bool whole = size == sizeof frame, is_packet = size > 0 && size <= sizeof((struct packet *)0)->bytes;
    if (whole) memcpy(&frame, bytes, sizeof frame);
    bool understood = whole && model_frame(&frame, descriptor);
    *(understood ? &fuzz_understood : &fuzz_refused) += 1;
    expected_broken += is_packet && !understood;
    if (!understood) carrier = 0;
    process_event(process, process->carrier);
    process_settle();
    compare();
}

static void begin(void) {
    static const struct copy_name other = {.owner = {2, 7}, .piece = 1 << 21};
    static bool begun;
    if (begun) {
        FUZZ_CHECK(pool_assert(&other, POOL_UNIT, 1));
        return;
    }
    begun = true;
    process_start(&(struct process_loop){watch, unwatch, poke, hear});
    FUZZ_CHECK(pool_open("pool") && units_resize(POOL_UNITS) == 0);
    units_add(0, POOL_UNITS);
    struct copy *copy = pool_begin_out(&other, POOL_UNIT, SHARE, 1);
    FUZZ_CHECK(copy != NULL);
    pool_end_out(copy, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct convgpu_piece ready = {.kind = CONVGPU_CARRIER_READY};
    if (size < 1 || size > FUZZ_LONGEST) return 0;
    begin();
    reconnect();
    say((const uint8_t *)&ready, sizeof ready, false);
    FUZZ_CHECK(model_sum() == 0);
    for (size_t place = 1; size - place >= 2 * sizeof(uint32_t);) {
        uint32_t words[2]; /* size and bits */
        memcpy(words, data + place, sizeof words);
        if (words[0] < sizeof words || words[0] > size - place) break;
        if (words[1] & RECONNECT) reconnect();
        if (carrier != 0)
            say(data + place + sizeof words, words[0] - sizeof words, words[1] & WITH_DESCRIPTOR);
        if (words[1] & BEGIN_JOBS) begin_jobs();
        if (words[1] & FINISH_JOBS) run_jobs(words[1] & FAIL_COPIES);
        place += words[0];
    }
    run_jobs(false);
    return 0;
}
