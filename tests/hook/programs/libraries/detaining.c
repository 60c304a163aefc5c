/* SPDX-License-Identifier: Apache-2.0
 *
 * Detains the first thread that naps once the file `detain` is there, where it stands: the file is `detained`
 * then, and whoever removes that lets the thread go on. The simulated driver naps while it waits for the
 * device, without a lock.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int nanosleep(const struct timespec *time, struct timespec *left) {
    const struct timespec moment = {.tv_nsec = 1000000};
    if (rename("detain", "detained") == 0)
        while (access("detained", F_OK) == 0) clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left); /* as Linux does for nanosleep */
    return errno == 0 ? 0 : -1;
}
