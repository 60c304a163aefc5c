/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/connection.h"

#include "base/coarse_clock.h"
#include "base/no_cancel.h"
#include "scheduler/socket_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { HANDSHAKE_SECONDS = 10, CHECK_MS = 2000 };
enum { ABSENCE_MS = 5000, ABSENCE_STEP_MS = 50 }; /* how long a program that starts waits for a scheduler */
enum { HIGH_DESCRIPTOR = 960 };                   /* below the usual limit of 1024 */

static bool gave_up; /* a scheduler was waited for in vain: the next CUDA call does not wait again */

/* Held while a descriptor exists that no variable names yet, so that a forked child can close them all. */
static pthread_mutex_t descriptors = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int connection_socket = -1;
static _Atomic int received_descriptor = -1; /* came with a frame, and nobody has taken it yet */
static _Atomic uint64_t cookie; /* the kernel's own name of the socket; 0 where it has none (Linux 4.11) */

static int fail(struct connection_failure *failure, int error) {
    failure->refused = false;
    failure->error = error;
    return -1;
}

static uint64_t read_cookie(int descriptor) {
    uint64_t number = 0;
    socklen_t size = sizeof number;
    return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &number, &size) == 0 ? number : 0;
}

/* Programs close descriptors that they do not know (daemons close all), and then the number is a file of
 * theirs: it is not for us to read, write or close. */
static bool is_ours(int descriptor) {
    return descriptor >= 0 && read_cookie(descriptor) == cookie;
}

/* With a high number, which no file of the program gets by chance, and which is in nobody's way. */
static int new_socket(void) {
    int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int high = low < 0 ? -1 : (int)syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) return low;
    close(low);
    return high;
}

static int dial(const char *path, struct connection_failure *failure) {
    pthread_mutex_lock(&descriptors);
    int descriptor = new_socket();
    cookie = descriptor < 0 ? 0 : read_cookie(descriptor);
    connection_socket = descriptor;
    pthread_mutex_unlock(&descriptors);
    if (connection_socket < 0) return fail(failure, errno);
    socket_set_timeout(connection_socket, HANDSHAKE_SECONDS);
    return socket_connect(connection_socket, path) ? 0 : fail(failure, errno);
}

bool connection_send(const void *frame, uint32_t size) {
    int cancellation = no_cancel_begin();
    bool sent = is_ours(connection_socket) && socket_send(connection_socket, frame, size);
    no_cancel_end(cancellation);
    if (sent) return true;
    connection_shutdown(); /* half a frame may be out: nothing that follows would be understood */
    return false;
}

/* The rest of a frame whose first `have` bytes of header are here. errno EPROTO for what is no frame. */
static bool receive_rest(struct connection_frame *frame, size_t have) {
    if (!socket_receive(connection_socket, (char *)&frame->header + have, sizeof frame->header - have))
        return false;
    errno = EPROTO;
    if (frame->header.size < sizeof frame->header || frame->header.size > CONVGPU_MAX_FRAME) return false;
    uint32_t left = frame->header.size - (uint32_t)sizeof frame->header;
    frame->size = left < sizeof frame->body ? left : (uint32_t)sizeof frame->body;
    if (!socket_receive(connection_socket, frame->body, frame->size)) return false;
    for (left -= frame->size; left > 0;) {
        char surplus[256];
        uint32_t part = left < sizeof surplus ? left : (uint32_t)sizeof surplus;
        if (!socket_receive(connection_socket, surplus, part)) return false;
        left -= part;
    }
    return true;
}

bool connection_well_formed(const struct connection_frame *frame) {
    if (frame->header.version != CONVGPU_PROTOCOL_VERSION && frame->header.kind != CONVGPU_FAILED)
        return false;
    switch (frame->header.kind) {
    case CONVGPU_WELCOME:
        return frame->size >= sizeof(struct convgpu_welcome);
    case CONVGPU_ACCEPTED:
        return frame->size >= sizeof(struct convgpu_accepted);
    case CONVGPU_REJECTED:
        return frame->size >= sizeof(struct convgpu_rejected);
    case CONVGPU_CONTEXT_SIZE:
        return frame->size >= sizeof(struct convgpu_context_size);
    case CONVGPU_USAGE:
        return frame->size >= sizeof(struct convgpu_usage);
    case CONVGPU_FAILED:
        return frame->size >= sizeof(struct convgpu_failed);
    case CONVGPU_EXPLAINED:
        return frame->size >= sizeof(struct convgpu_explained);
    case CONVGPU_CARRIER:
        return frame->size >= sizeof(struct convgpu_carrier);
    case CONVGPU_STOP:
        return frame->size >= sizeof(struct convgpu_stop);
    case CONVGPU_STEP:
        return frame->size >= sizeof(struct convgpu_step);
    case CONVGPU_EVICT:
        return frame->size >= sizeof(struct convgpu_evict);
    case CONVGPU_RESTORE:
        return frame->size >= sizeof(struct convgpu_restore);
    case CONVGPU_GO:
        return frame->size >= sizeof(struct convgpu_go);
    case CONVGPU_WATCH:
        return frame->size >= sizeof(struct convgpu_watch);
    case CONVGPU_LIST:
        return frame->size >= sizeof(struct convgpu_list) && frame->header.id != 0;
    default:
        return false;
    }
}

void connection_text(const struct connection_frame *frame, char text[CONVGPU_TEXT_SIZE]) {
    bool failed = frame->header.kind == CONVGPU_FAILED;
    memcpy(text, frame->body + (failed ? offsetof(struct convgpu_failed, text) : 0), CONVGPU_TEXT_SIZE);
    text[CONVGPU_TEXT_SIZE - 1] = '\0';
    for (char *next = text; *next; next++)
        if ((unsigned char)*next < ' ') *next = ' ';
}

/* Maps the page behind a received descriptor, which is closed. NULL when it is too small to be one. */
static struct convgpu_page *map_page(int descriptor) {
    void *page = MAP_FAILED;
    if (lseek(descriptor, 0, SEEK_END) >= (off_t)sizeof(struct convgpu_page))
        page = mmap(NULL, sizeof(struct convgpu_page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    return page == MAP_FAILED ? NULL : page;
}

/* Closes a descriptor that came before and that nobody has taken. */
static void keep_descriptor(int descriptor) {
    int before = atomic_exchange(&received_descriptor, descriptor);
    if (before >= 0) close(before);
}

/* Reads the first bytes of a frame that is there, with which descriptors may come: the first one is kept.
 * Returns their number, or -1 with errno (0 at the end of the connection). */
static ssize_t receive_first(struct convgpu_header *header) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec bytes = {.iov_base = header, .iov_len = sizeof *header};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    pthread_mutex_lock(&descriptors);
    keep_descriptor(-1); /* of a frame before, maybe of another connection */
    ssize_t received = recvmsg(connection_socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    for (struct cmsghdr *part = received > 0 ? CMSG_FIRSTHDR(&message) : NULL; part;
         part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t index = count; index-- > 0;) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(part) + index * sizeof descriptor, sizeof descriptor);
            keep_descriptor(descriptor);
        }
    }
    pthread_mutex_unlock(&descriptors);
    if (received == 0) errno = 0;
    return received > 0 ? received : -1;
}

int connection_take_descriptor(void) {
    return atomic_exchange(&received_descriptor, -1);
}

/* Waits until there is something to read, the connection has ended, or CHECK_MS are over; false then. poll()
 * fails in a program that allows itself no file at all (RLIMIT_NOFILE 0 and EINVAL), or whose filter of
 * system calls does not know it: then a byte is waited for that stays where it is, and the descriptor with
 * it. */
static bool wait_readable(void) {
    struct pollfd ready = {.fd = connection_socket, .events = POLLIN};
    int polled = poll(&ready, 1, CHECK_MS);
    if (polled >= 0 || errno == EINTR) return polled > 0;
    if (!is_ours(connection_socket)) return false;
    char byte;
    socket_set_receive_timeout(connection_socket, CHECK_MS / 1000);
    ssize_t peeked = recv(connection_socket, &byte, sizeof byte, MSG_PEEK);
    bool over = peeked < 0 && (errno == EAGAIN || errno == EINTR);
    if (is_ours(connection_socket)) socket_set_receive_timeout(connection_socket, 0);
    return !over;
}

/* The kernel keeps a socket that is waited for, though the program has closed its descriptor: so it is
 * checked from time to time. */
bool connection_receive(struct connection_frame *frame) {
    bool readable;
    do {
        readable = wait_readable();
        coarse_clock_tick();
    } while (!readable && is_ours(connection_socket));
    if (!is_ours(connection_socket)) return false;
    ssize_t have = receive_first(&frame->header);
    return have > 0 && receive_rest(frame, (size_t)have);
}

/* Waits for the reply to HELLO and reads its first bytes, with which the page's descriptor comes. */
static ssize_t receive_reply(struct convgpu_header *header, struct convgpu_page **page) {
    if (!socket_wait(connection_socket, HANDSHAKE_SECONDS)) return -1;
    ssize_t received = receive_first(header);
    int saved_errno = errno;
    pthread_mutex_lock(&descriptors);
    int descriptor = connection_take_descriptor();
    if (descriptor >= 0) *page = map_page(descriptor);
    pthread_mutex_unlock(&descriptors);
    errno = saved_errno;
    return received;
}

static int say_hello(const struct connection_greeting *greeting, struct connection_failure *failure) {
    struct {
        struct convgpu_header header;
        struct convgpu_hello hello;
        struct convgpu_held held[CONVGPU_MAX_DEVICES];
    } frame;
    size_t rows = greeting->hello.held_count * sizeof frame.held[0];
    frame.header = (struct convgpu_header){
        .size = (uint32_t)(sizeof frame.header + sizeof frame.hello + rows),
        .version = CONVGPU_PROTOCOL_VERSION,
        .kind = CONVGPU_HELLO,
        .id = 1,
    };
    frame.hello = greeting->hello;
    memcpy(frame.held, greeting->held, rows);
    return connection_send(&frame, frame.header.size) ? 0 : fail(failure, errno);
}

static int read_welcome(struct connection_welcome *welcome, struct connection_failure *failure) {
    struct connection_frame frame;
    ssize_t have = receive_reply(&frame.header, &welcome->page);
    if (have < 0 || !receive_rest(&frame, (size_t)have)) {
        return fail(failure, errno == 0 ? ECONNRESET : errno);
    }
    if (!connection_well_formed(&frame)) return fail(failure, EPROTO);
    if (frame.header.kind == CONVGPU_FAILED) {
        connection_text(&frame, failure->text);
        failure->refused = true;
        return -1;
    }
    struct convgpu_welcome body;
    if (frame.header.kind != CONVGPU_WELCOME) return fail(failure, EPROTO);
    memcpy(&body, frame.body, sizeof body);
    if (body.device_count > CONVGPU_MAX_DEVICES || !welcome->page ||
        frame.size < sizeof body + body.device_count * sizeof welcome->rows[0] ||
        welcome->page->magic != CONVGPU_PAGE_MAGIC || welcome->page->version != CONVGPU_PAGE_VERSION)
        return fail(failure, EPROTO);
    welcome->count = body.device_count;
    memcpy(welcome->rows, frame.body + sizeof body, body.device_count * sizeof welcome->rows[0]);
    return 0;
}

bool connection_open(const struct connection_greeting *greeting, struct connection_welcome *welcome,
                     struct connection_failure *failure) {
    welcome->page = NULL;
    if (dial(greeting->path, failure) == 0 && say_hello(greeting, failure) == 0 &&
        read_welcome(welcome, failure) == 0) {
        socket_set_receive_timeout(connection_socket, 0); /* from here on: an answer may take that long */
        return true;
    }
    if (welcome->page) munmap(welcome->page, sizeof *welcome->page);
    connection_close();
    return false;
}

/* A scheduler that is being started again leaves its socket: nobody listens, or the handshake ends. Without a
 * plugin there is no socket at all. */
static bool may_come_back(const struct connection_failure *failure) {
    return !failure->refused &&
           (failure->error == ECONNREFUSED || failure->error == ECONNRESET || failure->error == EPIPE);
}

bool connection_open_first(const struct connection_greeting *greeting, struct connection_welcome *welcome,
                           struct connection_failure *failure) {
    int left = gave_up ? 0 : ABSENCE_MS;
    for (; !connection_open(greeting, welcome, failure); left -= ABSENCE_STEP_MS) {
        if (!may_come_back(failure)) return false;
        gave_up = left <= 0;
        if (gave_up) return false;
        struct timespec pause = {.tv_nsec = ABSENCE_STEP_MS * 1000000L};
        while (nanosleep(&pause, &pause) < 0 && errno == EINTR) continue;
    }
    gave_up = false;
    return true;
}

void connection_shutdown(void) {
    int saved_errno = errno;
    if (is_ours(connection_socket)) shutdown(connection_socket, SHUT_RDWR);
    errno = saved_errno;
}

static void close_socket(void) {
    int descriptor = atomic_exchange(&connection_socket, -1);
    if (is_ours(descriptor)) close(descriptor);
}

void connection_close(void) {
    pthread_mutex_lock(&descriptors);
    close_socket();
    pthread_mutex_unlock(&descriptors);
}

void connection_before_fork(void) {
    pthread_mutex_lock(&descriptors);
}

void connection_in_parent(void) {
    pthread_mutex_unlock(&descriptors);
}

void connection_in_child(void) {
    close_socket();
    gave_up = false;
    keep_descriptor(-1);
    descriptors = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
