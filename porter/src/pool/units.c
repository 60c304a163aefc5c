/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define INDEX_MAGIC   UINT64_C(0x31584e4c4f4f5043) /* "CPOOLNX1" */
#define INDEX_OFFSET  4096
#define INDEX_SIZE    (INDEX_OFFSET + (size_t)UNITS_MOST * sizeof(struct unit))
#define BOOT_ID_FILE  "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_CHARS 36
#define LOCK_PAUSE_NS 10000000 /* between looks at another porter's lock */
#define LOCK_TOLD     100      /* looks after which it is no short time any more: a second */
#define LOCK_LOOKS    1000     /* ten seconds */

struct index_header {
    uint64_t magic;
    char boot[BOOT_ID_CHARS]; /* pids and start times name processes only within one boot */
};

enum place { ABSENT = 0, AVAILABLE, USED, WITHDRAWN };

static int data_file;
static uint32_t most; /* units that the host's memory could hold */
static uint32_t count, used, hint;
static char *memory; /* addresses of `most` units, backed as far as the file goes */
static char *entries;
static uint8_t places[UNITS_MOST];
static bool begins[UNITS_MOST]; /* a registration */

static bool read_boot_id(char *id) {
    FILE *file = fopen(BOOT_ID_FILE, "re");
    bool whole = file != NULL && fread(id, 1, BOOT_ID_CHARS, file) == BOOT_ID_CHARS;
    if (file != NULL) fclose(file);
    return whole;
}

/* Empties an index that is not of this boot or this form. */
static bool prepare_index(int file) {
    struct index_header *header = (struct index_header *)entries;
    char boot[BOOT_ID_CHARS] = {0};
    if (!read_boot_id(boot)) log_line("%s: %s", BOOT_ID_FILE, strerror(errno));
    if (header->magic == INDEX_MAGIC && memcmp(header->boot, boot, sizeof boot) == 0) return true;
    if (ftruncate(file, 0) != 0 || ftruncate(file, INDEX_SIZE) != 0) return false;
    memcpy(header->boot, boot, sizeof boot);
    header->magic = INDEX_MAGIC;
    return ftruncate(data_file, 0) == 0;
}

static int open_private(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0 && fchmod(file, 0600) != 0) {
        close(file);
        return -1;
    }
    return file;
}

/* Waits for the porter of a scheduler that was killed, which still finishes the pieces at hand; not for ever,
 * as it may hang in the driver: who ends is started again, and is heard of. False: errno says why; EBUSY is
 * another porter. */
static bool lock(int file, const char *path) {
    for (unsigned looks = 0; flock(file, LOCK_EX | LOCK_NB) != 0; looks++) {
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        if (looks == LOCK_TOLD)
            log_line(
                "another porter has the pool %s; what is out comes back once that one has ended. If it "
                "does not, end it (pkill -KILL -o convgpu-porter); if it stays even then, the driver keeps "
                "it until the host is restarted",
                path);
        if (looks == LOCK_LOOKS) {
            errno = EBUSY;
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    return true;
}

static bool is_file_of(const char *path, int file) {
    struct stat named, opened;
    return stat(path, &named) == 0 && fstat(file, &opened) == 0 && named.st_dev == opened.st_dev &&
           named.st_ino == opened.st_ino;
}

/* Opens the data file and locks it. Whoever removes the file holds the lock meanwhile (pool_files.py): a copy
 * in a removed file would be found by nobody, so what was removed is opened anew. -1: errno says why. */
static int own(const char *path) {
    for (;;) {
        int file = open_private(path);
        if (file < 0) return -1;
        if (!lock(file, path)) {
            int error = errno;
            close(file);
            errno = error;
            return -1;
        }
        if (is_file_of(path, file)) return file;
        close(file);
    }
}

static bool open_index(const char *path) {
    char name[4096];
    if ((size_t)snprintf(name, sizeof name, "%s.index", path) >= sizeof name) {
        errno = ENAMETOOLONG;
        return false;
    }
    int file = open_private(name);
    if (file < 0 || ftruncate(file, INDEX_SIZE) != 0) return false;
    entries = mmap(NULL, INDEX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    bool prepared = entries != MAP_FAILED && prepare_index(file);
    close(file);
    return prepared;
}

bool units_open(const char *path) {
    struct stat status;
    data_file = own(path);
    if (data_file < 0 || !open_index(path) || fstat(data_file, &status) != 0) {
        log_line("the pool %s cannot be opened: %s", path, strerror(errno));
        return false;
    }
    uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / POOL_UNIT;
    most = host < UNITS_MOST ? (uint32_t)host : UNITS_MOST;
    memory = mmap(NULL, most * POOL_UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        log_line("no addresses for the pool: %s", strerror(errno));
        return false;
    }
    uint64_t there = (uint64_t)status.st_size / POOL_UNIT;
    int error = units_resize(there < most ? (uint32_t)there : most);
    if (error != 0) log_line("the pool %s cannot be mapped: %s", path, strerror(error));
    return error == 0;
}

uint32_t units_most(void) {
    return most;
}

uint32_t units_count(void) {
    return count;
}

struct unit *units_entry(uint32_t number) {
    return (struct unit *)(entries + INDEX_OFFSET) + number;
}

void *units_address(uint32_t number) {
    return memory + (uint64_t)number * POOL_UNIT;
}

int units_resize(uint32_t wanted) {
    uint64_t size = wanted * POOL_UNIT, before = count * POOL_UNIT;
    if (ftruncate(data_file, (off_t)size) != 0) return errno;
    if (size > before) {
        void *added = mmap(memory + before, size - before, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                           data_file, (off_t)before);
        if (added == MAP_FAILED) {
            int error = errno;
            if (ftruncate(data_file, (off_t)before) != 0) log_line("ftruncate: %s", strerror(errno));
            return error;
        }
        madvise(added, size - before, MADV_HUGEPAGE); /* tmpfs may or may not */
    } else if (size < before) {
        void *gone = mmap(memory + size, before - size, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (gone == MAP_FAILED) return errno;
    }
    count = wanted;
    return 0;
}

static uint32_t find_run(unsigned wanted, uint32_t from, uint32_t to) {
    unsigned run = 0;
    for (uint32_t number = from; number < to; number++) {
        run = places[number] == AVAILABLE ? run + 1 : 0;
        if (run == wanted) return number + 1 - wanted;
    }
    return UNITS_MOST;
}

bool units_take(uint32_t *units, unsigned wanted) {
    uint32_t run = find_run(wanted, hint, count), found = 0;
    if (run == UNITS_MOST) run = find_run(wanted, 0, count);
    uint32_t begin = run == UNITS_MOST ? 0 : run;
    for (uint32_t number = begin; number < count && found < wanted; number++)
        if (places[number] == AVAILABLE) units[found++] = number;
    if (found < wanted) return false;
    for (unsigned i = 0; i < wanted; i++) places[units[i]] = USED;
    used += wanted;
    hint = units[wanted - 1] + 1;
    return true;
}

void units_give(const uint32_t *units, unsigned given) {
    for (unsigned i = 0; i < given; i++) places[units[i]] = AVAILABLE;
    used -= given;
    growth_wake();
}

void units_claim(uint32_t number) {
    places[number] = USED;
    used++;
}

void units_offer(void) {
    for (uint32_t number = 0; number < count; number++)
        if (places[number] == ABSENT) places[number] = AVAILABLE;
}

void units_add(uint32_t first, uint32_t added) {
    memset(places + first, AVAILABLE, added);
}

bool units_withdraw(uint32_t first, uint32_t withdrawn) {
    bool all = true;
    for (uint32_t number = first; number < first + withdrawn; number++) {
        if (places[number] == AVAILABLE) places[number] = WITHDRAWN;
        all = all && places[number] != USED;
    }
    return all;
}

uint32_t units_used(void) {
    return used;
}

void units_return(uint32_t end) {
    for (uint32_t number = 0; number < end; number++)
        if (places[number] == WITHDRAWN) places[number] = AVAILABLE;
}

bool units_begins_registration(uint32_t number) {
    return begins[number];
}

void units_mark_registration(uint32_t number, bool mark) {
    begins[number] = mark;
}
