/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into programs, porter and scheduler: names each step of a move as it comes, and kills a process
 * at the step that a test has chosen. A step is a frame that is about to be sent ("send OUT"), was sent
 * ("sent OUT") or has come ("got OUT"), or a call of the simulated driver ("call cuMemUnmap"). The test
 * chooses and looks in a file that all of them map (steps.py).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <convgpu/carrier.h>
#include <convgpu/protocol.h>

enum { NAME = 52, SEEN = 256 };

/* As steps.py has it. */
struct plan {
    _Atomic uint32_t armed;  /* 1: a kill is planned */
    _Atomic int32_t killed;  /* pid of who was killed; 0: nobody yet */
    _Atomic int32_t skip;    /* how often the step passes before */
    int32_t victim;          /* pid; 0: whoever reaches the step */
    _Atomic uint32_t listed; /* rows of `seen` */
    uint32_t lists;          /* whether steps are listed there */
    char step[NAME];
    struct {
        char name[NAME];
        _Atomic uint32_t times;
    } seen[SEEN];
};

static struct plan *plan;
static const char *role = "";

/* Processes that come at once may make two rows; the test adds them up. */
static void list(const char *name) {
    uint32_t count = atomic_load(&plan->listed), row = 0;
    while (row < count && row < SEEN && strcmp(plan->seen[row].name, name) != 0) row++;
    if (row == count) row = atomic_fetch_add(&plan->listed, 1);
    if (row >= SEEN) return;
    strcpy(plan->seen[row].name, name);
    atomic_fetch_add(&plan->seen[row].times, 1);
}

static void reach(const char *when, const char *what) {
    char name[NAME];
    if (!plan) return;
    snprintf(name, sizeof name, "%s %s %s", role, when, what);
    if (plan->lists) list(name);
    if (!atomic_load(&plan->armed) || strcmp(plan->step, name) != 0) return;
    if (atomic_fetch_sub(&plan->skip, 1) > 0) return;
    if (!atomic_exchange(&plan->armed, 0)) return;
    int32_t victim = plan->victim ? plan->victim : getpid();
    atomic_store(&plan->killed, victim);
    kill(victim, SIGKILL);
}

/* The simulated driver calls this, if it is there, before it does a step of a move. */
void simulated_step(const char *call) {
    reach("call", call);
}

/* ---- frames ---------------------------------------------------------------------------------------------
 */

#define NAME_OF(name, number)                                                                                \
    case number:                                                                                             \
        return #name;

static const char *stream_name(uint32_t kind) {
    switch (kind) {
        CONVGPU_KINDS(NAME_OF)
    default:
        return NULL;
    }
}

static const char *carrier_name(uint32_t kind) {
    switch (kind) {
        CONVGPU_CARRIER_KINDS(NAME_OF)
    default:
        return NULL;
    }
}

static const char *porter_name(uint32_t kind) {
    switch (kind) {
        CONVGPU_PORTER_KINDS(NAME_OF)
    default:
        return NULL;
    }
}

/* One packet is one frame; those of a carrier have a size of their own. */
static void name_packet(const char *when, const void *bytes, size_t size) {
    uint32_t kind;
    if (size < sizeof kind) return;
    memcpy(&kind, bytes, sizeof kind);
    const char *name = size == sizeof(struct convgpu_piece) ? carrier_name(kind) : porter_name(kind);
    if (name) reach(when, name);
}

/* All frames that begin in these bytes. */
static void name_stream(const char *when, const char *bytes, size_t size) {
    struct convgpu_header header;
    for (size_t at = 0; size - at >= sizeof header; at += header.size) {
        memcpy(&header, bytes + at, sizeof header);
        const char *name = stream_name(header.kind);
        if (header.version != CONVGPU_PROTOCOL_VERSION || !name || header.size < sizeof header) return;
        reach(when, name);
        if (header.size > size - at) return;
    }
}

static void name_frames(int socket, const char *when, const void *bytes, ssize_t size) {
    int type = 0, before = errno;
    socklen_t length = sizeof type;
    if (plan && size > 0 && getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0) {
        if (type == SOCK_SEQPACKET) name_packet(when, bytes, (size_t)size);
        if (type == SOCK_STREAM) name_stream(when, bytes, (size_t)size);
    }
    errno = before;
}

/* By system calls: the hook has a dlsym of its own, through which the next function would be looked up. */
ssize_t send(int socket, const void *bytes, size_t size, int flags) {
    name_frames(socket, "send", bytes, (ssize_t)size);
    ssize_t sent = syscall(SYS_sendto, socket, bytes, size, flags, NULL, 0);
    name_frames(socket, "sent", bytes, sent);
    return sent;
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
    const struct iovec *part = message->msg_iov;
    name_frames(socket, "send", part->iov_base, (ssize_t)part->iov_len);
    ssize_t sent = syscall(SYS_sendmsg, socket, message, flags);
    if (sent > 0) name_frames(socket, "sent", part->iov_base, (ssize_t)part->iov_len);
    return sent;
}

ssize_t recv(int socket, void *bytes, size_t size, int flags) {
    ssize_t received = syscall(SYS_recvfrom, socket, bytes, size, flags, NULL, NULL);
    if (!(flags & MSG_PEEK)) name_frames(socket, "got", bytes, received);
    return received;
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags) {
    ssize_t received = syscall(SYS_recvmsg, socket, message, flags);
    if (!(flags & MSG_PEEK) && received > 0) name_frames(socket, "got", message->msg_iov->iov_base, received);
    return received;
}

/* The porter is a child of the scheduler and has its environment. */
__attribute__((constructor)) static void begin(void) {
    char program[256] = "";
    const char *path = getenv("SABOTEUR_PLAN");
    const char *given = getenv("SABOTEUR_ROLE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return;
    role = strstr(program, "convgpu-porter") ? "porter" : given ? given : "";
    plan = mapped;
}
