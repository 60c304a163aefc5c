/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "pool/pool.h"

static int control = -1;

void control_open(int socket) {
    control = socket;
}

/* Waits for a scheduler that is slow; one that is gone is seen by the main loop. */
static void report(const void *frame, size_t size) {
    ssize_t sent;
    do {
        sent = send(control, frame, size, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EPIPE && errno != ECONNRESET) log_line("no report: %s", strerror(errno));
}

void control_moved(const struct convgpu_moved *moved) {
    report(moved, sizeof *moved);
}

void control_gone(uint32_t kind, uint64_t session, uint64_t size) {
    report(&(struct convgpu_gone){.kind = kind, .session = session, .size = size},
           sizeof(struct convgpu_gone));
}

void control_checkpointed(uint64_t session, bool restored, uint32_t error) {
    struct convgpu_checkpointed frame = {
        .kind = CONVGPU_PORTER_CHECKPOINTED, .restored = restored, .session = session, .error = error};
    report(&frame, sizeof frame);
}

void control_pool(void) {
    static struct pool_figures last = {.size = UINT64_MAX};
    struct pool_figures figures = pool_figures();
    if (figures.size == last.size && figures.used == last.used && figures.error == last.error) return;
    last = figures;
    struct convgpu_pooled frame = {
        .kind = CONVGPU_PORTER_POOLED, .error = figures.error, .size = figures.size, .used = figures.used};
    report(&frame, sizeof frame);
}
