/* SPDX-License-Identifier: Apache-2.0 */
#include "simulated/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MUTEX_BYTE (INT64_C(1) << 40)
#define SLOT_BYTE  (MUTEX_BYTE + 1)

static struct flock one_byte(short type, off_t start) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
}

/* Field 22 of /proc/self/stat, counted from the last ')' because a program's name may hold anything. */
static uint64_t read_start_time(void) {
    char text[1024] = "";
    int descriptor = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return 0;
    ssize_t length = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    if (length <= 0) return 0;
    char *field = strrchr(text, ')');
    for (int number = 2; field != NULL && number < 22; number++) field = strchr(field + 1, ' ');
    return field == NULL ? 0 : strtoull(field + 1, NULL, 10);
}

struct process_identity process_identity(void) {
    static struct process_identity known;
    uint32_t pid = (uint32_t)getpid();
    if (known.pid != pid) {
        struct stat status;
        known.start_time = read_start_time();
        known.pid_namespace = stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
        known.pid = pid;
    }
    return known;
}

static int open_or_create(const char *path) {
    for (;;) {
        int descriptor = open(path, O_RDWR | O_CLOEXEC);
        if (descriptor >= 0 || errno != ENOENT) return descriptor >= 0 ? descriptor : -errno;
        descriptor = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
        if (descriptor >= 0) {
            /* Past the umask, which is the program's and not touched: containers run as any user. */
            return fchmod(descriptor, 0666) == 0 ? descriptor : -errno;
        }
        if (errno != EEXIST) return -errno; /* another process came first: open what it made */
    }
}

int open_locked(const char *path, size_t size, void **mapping) {
    int descriptor = open_or_create(path);
    if (descriptor < 0) return descriptor;
    lock_mutex(descriptor);
    struct stat status;
    if (fstat(descriptor, &status) != 0) goto failed;
    if ((size_t)status.st_size < size && ftruncate(descriptor, (off_t)size) != 0) goto failed;
    *mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (*mapping != MAP_FAILED) return descriptor;
failed:;
    int error = -errno;
    unlock_mutex(descriptor); /* and left open: see state.h */
    return error;
}

/* A card's driver does its work in ioctl, which is no cancellation point; this wait would be one. */
void lock_mutex(int descriptor) {
    struct flock lock = one_byte(F_WRLCK, MUTEX_BYTE);
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    while (fcntl(descriptor, F_OFD_SETLKW, &lock) != 0) {
        if (errno == EINTR) continue;
        fprintf(stderr, "simulated GPU: lost the lock on the state file: %s\n", strerror(errno));
        abort();
    }
    pthread_setcancelstate(before, &before);
}

void unlock_mutex(int descriptor) {
    struct flock lock = one_byte(F_UNLCK, MUTEX_BYTE);
    if (fcntl(descriptor, F_OFD_SETLK, &lock) != 0) abort();
}

int hold_slot(int descriptor, uint32_t k) {
    struct flock lock = one_byte(F_WRLCK, SLOT_BYTE + (off_t)k);
    return fcntl(descriptor, F_SETLK, &lock) == 0 ? 0 : -errno;
}

bool slot_holder(int descriptor, uint32_t k, pid_t *pid) {
    struct flock lock = one_byte(F_WRLCK, SLOT_BYTE + (off_t)k);
    if (fcntl(descriptor, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return false;
    *pid = lock.l_pid > 0 ? lock.l_pid : 0;
    return true;
}

int open_holding_byte(const char *path, uint32_t byte) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return -errno;
    struct flock lock = one_byte(F_RDLCK, byte);
    if (fcntl(descriptor, F_OFD_SETLK, &lock) == 0) return descriptor;
    int error = -errno;
    close(descriptor);
    return error;
}

bool byte_is_held(int descriptor, uint32_t byte) {
    struct flock lock = one_byte(F_WRLCK, byte);
    return fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
