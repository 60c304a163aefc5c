/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Field 22 of /proc/PID/stat, behind the name, which may hold anything. */
static uint64_t start_time(uint32_t pid) {
    char path[32], text[1024];
    unsigned long long started = 0;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    char *field = strrchr(text, ')');
    for (int i = 0; i < 20 && field != NULL; i++) field = strchr(field + 1, ' ');
    if (field == NULL || sscanf(field, " %llu", &started) != 1) return 0;
    return started;
}

int proc_open(uint32_t pid, uint64_t started) {
    int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (pidfd < 0 || start_time(pid) == started) return pidfd;
    close(pidfd);
    return -1;
}

bool proc_has_ended(int pidfd) {
    struct pollfd poll_pidfd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_pidfd, 1, 0) > 0;
}
