/* SPDX-License-Identifier: Apache-2.0
 *
 * The mover's thread owns the socket; a new one waits in `offered` until it takes it. So no thread closes a
 * descriptor that another one uses. The answers of a porter that has ended are read before its socket is
 * closed: a copy that it gave back is nowhere else. Programs that close descriptors they do not know close
 * this one too: what has its number then is not ours, which the kernel's name of the socket tells.
 */
#include "residency/carrier.h"

#include "base/fork_reset.h"
#include "gate/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { HIGH_DESCRIPTOR = 960 }; /* as in connection.c */
enum { SEND_SECONDS = 5 };      /* a porter that does not read for longer is given up */

static _Atomic int offered = -1;
static _Atomic int own = -1; /* written by the mover's thread, and in the child of a fork */
static uint64_t cookie;      /* of `own` */

static uint64_t read_cookie(int descriptor) {
    uint64_t number = 0;
    socklen_t size = sizeof number;
    return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &number, &size) == 0 ? number : 0;
}

static bool is_ours(void) {
    return own >= 0 && read_cookie(own) == cookie;
}

static void break_off(void) {
    int descriptor = atomic_exchange(&own, -1);
    if (descriptor >= 0 && read_cookie(descriptor) == cookie) close(descriptor);
}

void carrier_adopt(int descriptor) {
    int high = (int)syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high >= 0) close(descriptor);
    int before = atomic_exchange(&offered, high >= 0 ? high : descriptor);
    if (before >= 0) close(before);
    queue_wake();
}

bool carrier_is_offered(void) {
    return offered >= 0;
}

void carrier_begin(void) {
    int descriptor = atomic_exchange(&offered, -1);
    if (descriptor < 0) return;
    break_off();
    struct timeval bound = {.tv_sec = SEND_SECONDS};
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
    cookie = read_cookie(descriptor);
    own = descriptor;
}

bool carrier_is_there(void) {
    return own >= 0;
}

bool carrier_send(const struct convgpu_piece *frame, int descriptor) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec bytes = {.iov_base = (void *)(uintptr_t)frame, .iov_len = sizeof *frame};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
    }
    ssize_t sent = -1;
    while (is_ours() && (sent = sendmsg(own, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) continue;
    bool ended = sent < 0 && (errno == EPIPE || errno == ECONNRESET);
    if (sent != sizeof *frame && !(ended && is_ours())) break_off();
    return sent == sizeof *frame;
}

bool carrier_receive(struct convgpu_piece *frame, int milliseconds) {
    struct pollfd ready = {.fd = own, .events = POLLIN};
    if (own < 0 || poll(&ready, 1, milliseconds) == 0) return false;
    ssize_t received;
    do {
        received = is_ours() ? recv(own, frame, sizeof *frame, MSG_DONTWAIT) : 0;
    } while (received < 0 && errno == ECONNRESET); /* once, before the answers of a porter that has ended */
    if (received == sizeof *frame) return true;
    if (received >= 0 || (errno != EINTR && errno != EAGAIN)) break_off();
    return false;
}

static void carrier_reset(void) {
    break_off();
    int descriptor = atomic_exchange(&offered, -1);
    if (descriptor >= 0) close(descriptor);
}
RESET_IN_CHILD(carrier_reset);
