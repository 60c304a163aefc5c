/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/socket_io.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

static void set_timeout(int socket, int option, int seconds) {
    struct timeval timeout = {.tv_sec = seconds};
    setsockopt(socket, SOL_SOCKET, option, &timeout, sizeof timeout);
}

void socket_set_timeout(int socket, int seconds) {
    set_timeout(socket, SO_SNDTIMEO, seconds); /* connect() blocks while the scheduler's backlog is full */
    set_timeout(socket, SO_RCVTIMEO, seconds);
}

void socket_set_receive_timeout(int socket, int seconds) {
    set_timeout(socket, SO_RCVTIMEO, seconds);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* Whether a call goes on that a handler has ended with EINTR: each begins the socket's timeout anew, so what
 * counts is when the first one began. If not, errno is as after a timeout. */
static bool goes_on(int socket, int option, uint64_t began) {
    struct timeval timeout = {0};
    socklen_t size = sizeof timeout;
    if (errno != EINTR) return false;
    getsockopt(socket, SOL_SOCKET, option, &timeout, &size);
    errno = EAGAIN;
    return timeout.tv_sec == 0 || now() - began < (uint64_t)timeout.tv_sec * 1000;
}

/* A timeout of the socket is reported as EAGAIN. */
static bool failed(void) {
    if (errno == EAGAIN) errno = ETIMEDOUT;
    return false;
}

bool socket_connect(int socket, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(address.sun_path, path, length + 1);
    uint64_t began = now();
    int connected;
    do {
        connected = connect(socket, (struct sockaddr *)&address, sizeof address);
    } while (connected < 0 && goes_on(socket, SO_SNDTIMEO, began));
    return connected < 0 ? failed() : true;
}

bool socket_wait(int socket, int seconds) {
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    uint64_t end = now() + (uint64_t)seconds * 1000;
    int polled;
    do {
        uint64_t time = now();
        polled = poll(&ready, 1, time < end ? (int)(end - time) : 0);
    } while (polled < 0 && errno == EINTR);
    if (polled == 0) errno = ETIMEDOUT;
    return polled > 0;
}

bool socket_send(int socket, const void *bytes, size_t size) {
    uint64_t began = now();
    for (const char *next = bytes; size > 0;) {
        ssize_t sent = send(socket, next, size, MSG_NOSIGNAL);
        if (sent < 0 && goes_on(socket, SO_SNDTIMEO, began)) continue;
        if (sent <= 0) return failed();
        next += sent;
        size -= (size_t)sent;
    }
    return true;
}

bool socket_receive(int socket, void *bytes, size_t size) {
    uint64_t began = now();
    for (char *next = bytes; size > 0;) {
        ssize_t received = recv(socket, next, size, 0);
        if (received < 0 && goes_on(socket, SO_RCVTIMEO, began)) continue;
        if (received == 0) errno = 0;
        if (received <= 0) return failed();
        next += received;
        size -= (size_t)received;
    }
    return true;
}

const char *socket_describe_error(int error) {
    switch (error) {
    case ENOENT:
        return "no such socket";
    case ECONNREFUSED:
        return "nobody listens";
    case EACCES:
        return "permission denied";
    case ENAMETOOLONG:
        return "the path is too long";
    case ETIMEDOUT:
        return "no answer in time";
    case 0:
    case ECONNRESET:
    case EPIPE:
        return "it hung up";
    case EPROTO:
        return "what answers is no ConvGPU scheduler of this version";
    case EAGAIN:
        return "no thread could be started";
    case EMFILE:
    case ENFILE:
        return "too many open files";
    case EPERM:
        return "not permitted";
    default:
        return "connection failed";
    }
}
