/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/observer.h"

#include "base/log.h"
#include "base/no_cancel.h"
#include "scheduler/session.h"
#include "scheduler/socket_io.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_SECONDS = 1, REST_SECONDS = 5 };

/* A scheduler that was silent is left alone until then (seconds of CLOCK_MONOTONIC): nvidia-smi asks three
 * times for each card. */
static _Atomic int64_t rest_until;

static int64_t seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Anonymous memory of its own: malloc may be the program's, and a stack small. */
static void *new_frame(void) {
    void *frame = mmap(NULL, CONVGPU_MAX_FRAME, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return frame == MAP_FAILED ? NULL : frame;
}

/* False with errno; EPROTO for what is no answer. `body` has room for CONVGPU_MAX_FRAME bytes. */
static bool receive_answer(int socket, struct convgpu_header *header, void *body) {
    if (!socket_receive(socket, header, sizeof *header)) return false;
    errno = EPROTO;
    if (header->size < sizeof *header || header->size > CONVGPU_MAX_FRAME) return false;
    return socket_receive(socket, body, header->size - sizeof *header);
}

static bool exchange(int socket, const char *path, const uint8_t *uuid, struct convgpu_header *header,
                     void *body) {
    struct {
        struct convgpu_header header;
        struct convgpu_observe body;
    } question = {
        .header = {
            .size = sizeof question, .version = CONVGPU_PROTOCOL_VERSION, .kind = CONVGPU_OBSERVE, .id = 1}};
    memcpy(question.body.device, uuid, CONVGPU_UUID_SIZE);
    session_memory(question.body.memory);
    socket_set_timeout(socket, TIMEOUT_SECONDS);
    return socket_connect(socket, path) && socket_send(socket, &question, sizeof question) &&
           receive_answer(socket, header, body);
}

static bool is_observation(const struct convgpu_header *header, const struct observation *observation) {
    size_t size = header->size - sizeof *header;
    return header->version == CONVGPU_PROTOCOL_VERSION && header->kind == CONVGPU_OBSERVED &&
           size >= sizeof observation->figures &&
           (size - sizeof observation->figures) / sizeof observation->process[0] >=
               observation->figures.process_count;
}

static void say(const char *path, const struct convgpu_header *header, const void *body) {
    static _Atomic bool warned;
    struct convgpu_failed failed;
    char text[CONVGPU_TEXT_SIZE + 1] = "";
    if (atomic_exchange(&warned, true)) return;
    if (header && header->kind == CONVGPU_FAILED && header->size >= sizeof *header + sizeof failed) {
        memcpy(&failed, body, sizeof failed);
        memcpy(text, failed.text, sizeof failed.text);
    }
    for (char *next = text; *next; next++)
        if ((unsigned char)*next < ' ') *next = ' ';
    log_refusal("no memory figures from the scheduler at %s: %s.", path,
                *text ? text : socket_describe_error(header ? EPROTO : errno));
}

static struct observation *ask_once(const uint8_t *uuid, bool aloud) {
    struct convgpu_header header = {0};
    char path[PATH_MAX + 64];
    session_socket(path, sizeof path);
    if (seconds() < rest_until) {
        errno = ETIMEDOUT;
        if (aloud) say(path, NULL, NULL);
        return NULL;
    }
    struct observation *observation = new_frame();
    int descriptor = observation ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    bool answered = descriptor >= 0 && exchange(descriptor, path, uuid, &header, observation);
    if (answered && is_observation(&header, observation)) {
        close(descriptor);
        return observation;
    }
    if (!answered && errno == ETIMEDOUT) rest_until = seconds() + REST_SECONDS;
    if (aloud) say(path, answered ? &header : NULL, observation);
    if (descriptor >= 0) close(descriptor);
    if (observation) observer_release(observation);
    return NULL;
}

struct observation *observer_ask(const uint8_t *uuid, bool aloud) {
    int cancellation = no_cancel_begin();
    struct observation *observation = ask_once(uuid, aloud);
    no_cancel_end(cancellation);
    return observation;
}

void observer_release(struct observation *observation) {
    munmap(observation, CONVGPU_MAX_FRAME);
}
