/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/session.h"

#include "base/log.h"
#include "base/no_cancel.h"
#include "gpus/present_gpus.h"
#include "scheduler/channel.h"

#include <convgpu/page.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char socket_name[] = "scheduler.sock";

static _Atomic bool ready;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* outermost lock: held across the handshake */
static bool fork_watched; /* guarded by `opening`; stays true in a child, which inherits the handlers */

void session_socket(char *path, size_t room) {
    const char *asked = secure_getenv("CONVGPU_SOCKET");
    Dl_info self = {0};
    if (asked && *asked) {
        snprintf(path, room, "%s", asked);
        return;
    }
    const char *library = dladdr((void *)&ready, &self) && self.dli_fname ? self.dli_fname : "";
    const char *slash = strrchr(library, '/');
    int folder = slash ? (int)(slash - library) : 0;
    char current[PATH_MAX] = "";
    if (library[0] != '/' && !getcwd(current, sizeof current)) current[0] = '\0';
    snprintf(path, room, "%s%s%.*s/%s", current, *current && folder ? "/" : "", folder, library, socket_name);
}

/* The name of the process, not of the calling thread. */
static void read_program(char *name, size_t room) {
    int descriptor = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t length = descriptor < 0 ? 0 : read(descriptor, name, room - 1);
    if (descriptor >= 0) close(descriptor);
    name[length > 0 ? length : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
}

/* Made by the linker: RESET_IN_CHILD of all files. */
extern void (*const __start_convgpu_fork_reset[])(void) __attribute__((visibility("hidden")));
extern void (*const __stop_convgpu_fork_reset[])(void) __attribute__((visibility("hidden")));

/* A CUDA call in the child starts anew (the driver itself refuses what it does not support after fork). */
static void start_anew(void) {
    channel_in_child();
    for (void (*const *reset)(void) = __start_convgpu_fork_reset; reset < __stop_convgpu_fork_reset; reset++)
        (*reset)();
    opening = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    ready = false;
}

void session_memory(char memory[CONVGPU_MEMORY_SIZE]) {
    const char *own = getenv("CONVGPU_MEMORY");
    const char *reserved = getenv("DOCKER_RESOURCE_GPUMEM");
    bool digits = reserved && *reserved && reserved[strspn(reserved, "0123456789")] == '\0';
    if (own && *own)
        snprintf(memory, CONVGPU_MEMORY_SIZE, "%s", own);
    else
        snprintf(memory, CONVGPU_MEMORY_SIZE, "%s%s", digits ? reserved : "", digits ? "m" : "");
}

/* The container's GPUs as rows for HELLO; `held` has room for CONVGPU_MAX_DEVICES. Not the driver's answer:
 * it begins after the session, because it has to be told of the devices that the scheduler chose
 * (calls/initialise.c). */
static uint32_t list_present(struct convgpu_held *held) {
    uint8_t uuid[CONVGPU_MAX_DEVICES][UUID_BYTES];
    uint32_t count = present_gpus("/proc/driver/nvidia/gpus", "/dev", uuid, CONVGPU_MAX_DEVICES);
    for (uint32_t row = 0; row < count; row++) {
        memcpy(held[row].device, uuid[row], CONVGPU_UUID_SIZE);
        held[row].size = 0;
    }
    return count;
}

static bool open_session(void) {
    struct convgpu_held present[CONVGPU_MAX_DEVICES];
    char path[PATH_MAX + sizeof socket_name + 2];
    char program[CONVGPU_PROGRAM_SIZE];
    char memory[CONVGPU_MEMORY_SIZE];
    log_open();
    if (!fork_watched) fork_watched = pthread_atfork(channel_before_fork, channel_in_parent, start_anew) == 0;
    session_socket(path, sizeof path);
    read_program(program, sizeof program);
    session_memory(memory);
    return channel_open(path, program, memory, present, list_present(present));
}

bool session_is_open(void) {
    return atomic_load_explicit(&ready, memory_order_acquire);
}

bool session_ready(void) {
    if (session_is_open()) return true;
    int saved_errno = errno, cancellation = no_cancel_begin();
    pthread_mutex_lock(&opening);
    if (!ready) ready = open_session();
    pthread_mutex_unlock(&opening);
    no_cancel_end(cancellation);
    errno = saved_errno;
    return ready;
}
