/* SPDX-License-Identifier: Apache-2.0
 *
 * The porter: copies pieces of device memory to a pool on the host and back, for processes that the scheduler
 * names.
 *
 *   convgpu-porter --control DESCRIPTOR --pool FILE [--driver LIBRARY]
 *
 * It ends when the control socket does: the pool stays, and the next porter goes on with it. It may be killed
 * at any instant.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/closer.h"
#include "base/driver.h"
#include "base/log.h"
#include "base/packet.h"
#include "control.h"
#include "engine.h"
#include "pool/growth.h"
#include "pool/pool.h"
#include "process.h"

#define MOST_DESCRIPTORS 65536
#define FIGURES_PAUSE_MS 100 /* between reports of the pool */

static int poll_descriptor, poked, control;
static bool connected = true;           /* the scheduler is there */
static void *watched[MOST_DESCRIPTORS]; /* the process whose descriptor it is; NULL: not a process's */

static void watch(int descriptor, void *process) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    bool added =
        descriptor < MOST_DESCRIPTORS && epoll_ctl(poll_descriptor, EPOLL_CTL_ADD, descriptor, &event) == 0;
    if (!added) {
        log_line("descriptor %d cannot be watched: %s", descriptor, strerror(errno));
        exit(1);
    }
    watched[descriptor] = process;
}

static void unwatch(int descriptor) {
    epoll_ctl(poll_descriptor, EPOLL_CTL_DEL, descriptor, NULL);
    watched[descriptor] = NULL;
}

static void poke(void) {
    uint64_t one = 1;
    if (write(poked, &one, sizeof one) < 0) return; /* it is poked already */
}

/* A process may have its end of a carrier before we have ours. */
static void close_all(struct packet *packet) {
    for (unsigned i = 0; i < packet->count; i++) {
        int descriptor = packet_take(packet, i);
        if (descriptor >= 0) closer_take(descriptor, NULL);
    }
}

/* Handles one frame of the scheduler; false: there is none. */
static bool read_control(void) {
    struct packet packet;
    enum packet_outcome outcome = packet_read(control, &packet);
    if (outcome == PACKET_END) connected = false;
    if (outcome != PACKET_READ) {
        close_all(&packet);
        return false;
    }
    uint32_t kind = packet.size >= sizeof kind ? *(const uint32_t *)packet.bytes : 0;
    bool known = true;
    if (kind == CONVGPU_PORTER_POOL && packet.size == sizeof(struct convgpu_pool)) {
        pool_resize(((const struct convgpu_pool *)packet.bytes)->size);
    } else if (kind == CONVGPU_PORTER_ALLOW && packet.size == sizeof(struct convgpu_allow)) {
        process_allow((const struct convgpu_allow *)packet.bytes);
    } else if (kind == CONVGPU_PORTER_CHECKPOINT && packet.size == sizeof(struct convgpu_checkpoint)) {
        process_checkpoint((const struct convgpu_checkpoint *)packet.bytes);
    } else if (kind == CONVGPU_PORTER_SESSION) {
        known = process_session(&packet);
    } else {
        known = false;
    }
    if (!known) log_line("a control frame of kind %u and %zu bytes is not understood", kind, packet.size);
    close_all(&packet);
    return true;
}

static void hear(void) {
    while (connected && read_control()) continue;
}

static void run(void) {
    struct epoll_event events[64];
    while (connected) {
        int count = epoll_wait(poll_descriptor, events, 64, FIGURES_PAUSE_MS);
        for (int i = 0; i < count && connected; i++) {
            int descriptor = events[i].data.fd;
            uint64_t pokes;
            if (descriptor == control) {
                (void)read_control();
            } else if (descriptor == poked) {
                if (read(poked, &pokes, sizeof pokes) > 0) process_settle();
            } else if (watched[descriptor] != NULL) {
                process_event(watched[descriptor], descriptor);
            }
        }
        control_pool();
    }
}

static void adopt_owners(void) {
    size_t count;
    struct owner *owners = pool_owners(&count);
    for (size_t i = 0; i < count; i++) process_adopt(owners[i]);
    free(owners);
}

struct options {
    int control;
    const char *pool, *driver;
};

static bool read_options(int count, char **arguments, struct options *options) {
    static const struct option known[] = {
        {"control", required_argument, NULL, 'c'},
        {"pool", required_argument, NULL, 'p'},
        {"driver", required_argument, NULL, 'd'},
        {NULL, 0, NULL, 0},
    };
    *options = (struct options){.control = -1, .driver = "libcuda.so.1"};
    for (int found; (found = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        if (found == 'c') options->control = atoi(optarg);
        if (found == 'p') options->pool = optarg;
        if (found == 'd') options->driver = optarg;
        if (found == '?') return false;
    }
    return options->control >= 0 && options->pool != NULL;
}

int main(int count, char **arguments) {
    struct options options;
    if (!read_options(count, arguments, &options)) {
        log_line(
            "convgpu-porter --control DESCRIPTOR --pool FILE [--driver LIBRARY]; the scheduler starts it");
        return 2;
    }
    poll_descriptor = epoll_create1(EPOLL_CLOEXEC);
    poked = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (poll_descriptor < 0 || poked < 0) {
        log_line("no descriptors: %s", strerror(errno));
        return 1;
    }
    control = options.control;
    control_open(control);
    process_start(&(struct process_loop){watch, unwatch, poke, hear});
    if (!closer_start(process_closed) || !driver_open(options.driver) ||
        !engine_start(&process_engine_hooks) || !pool_open(options.pool))
        return 1;
    adopt_owners();
    if (!growth_start(poke)) return 1;
    watch(poked, NULL);
    watch(control, NULL);
    run();
    engine_finish();
    return 0;
}
