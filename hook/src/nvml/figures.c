/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVML tells inside a container: the container's limit and usage in place of the card's, and the
 * container's processes, with the pids that they have there, in place of the host's.
 *
 * The driver is asked first, so that its own errors reach the program. Without a scheduler the figures of a
 * process with a session are its own; without a session there are none, and the calls fail: the card's
 * figures would be those of other people.
 */
#include "nvml/nvml.h"

#include "calls/meminfo.h"
#include "scheduler/account.h"
#include "scheduler/observer.h"
#include "scheduler/session.h"
#include "tables/driver.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SPARE_ROWS = 32, NO_INSTANCE = -1 };
enum { ROW_V1 = 16, ROW_V2 = 24, ROW_DETAIL = 32 }; /* sizes of NVML's rows; each begins with the same */
enum mode { MODE_COMPUTE, MODE_GRAPHICS, MODE_MPS };

struct row {
    unsigned pid;
    unsigned long long used;
    int gpu_instance, compute_instance; /* from ROW_V2 on */
    unsigned long long protected;       /* ROW_DETAIL */
};
_Static_assert(sizeof(struct row) == ROW_DETAIL, "as in nvml.h");

/* Limit 0: the container has none on this device. */
static int find_figures(nvml_device device, struct query_figures *figures) {
    uint8_t uuid[CONVGPU_UUID_SIZE];
    int result = nvml_find_uuid(device, uuid);
    if (result != NVML_SUCCESS) return result;
    int number = session_is_open() ? account_find(uuid) : -1;
    if (number >= 0) {
        *figures = query_figures((uint32_t)number);
        return NVML_SUCCESS;
    }
    struct observation *observation = observer_ask(uuid, true);
    if (!observation) return NVML_ERROR_UNKNOWN;
    *figures = (struct query_figures){observation->figures.limit, observation->figures.used};
    observer_release(observation);
    return NVML_SUCCESS;
}

/* Puts the container's figures in place of the card's. Of a card without a limit nothing can be had. */
static int limit(nvml_device device, unsigned long long *total, unsigned long long *used) {
    struct query_figures figures;
    int result = find_figures(device, &figures);
    if (result != NVML_SUCCESS) *total = *used = 0;
    if (result != NVML_SUCCESS) return result;
    if (figures.limit == 0) figures.used = *total;
    if (figures.limit > 0 && figures.limit < *total) *total = figures.limit;
    *used = figures.used < *total ? figures.used : *total;
    return NVML_SUCCESS;
}

int hooked_nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory) {
    int result = NVML(nvmlDeviceGetMemoryInfo, device, memory);
    if (result != NVML_SUCCESS) return result;
    result = limit(device, &memory->total, &memory->used);
    memory->unused = memory->total - memory->used;
    return result;
}

int hooked_nvmlDeviceGetConfComputeProtectedMemoryUsage(nvml_device device, struct nvml_memory *memory) {
    int result = NVML(nvmlDeviceGetConfComputeProtectedMemoryUsage, device, memory);
    if (result != NVML_SUCCESS) return result;
    result = limit(device, &memory->total, &memory->used);
    memory->unused = memory->total - memory->used;
    return result;
}

int hooked_nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory) {
    int result = NVML(nvmlDeviceGetMemoryInfo_v2, device, memory);
    if (result != NVML_SUCCESS) return result;
    result = limit(device, &memory->total, &memory->used);
    memory->reserved = 0; /* what the driver keeps of the card for itself is in nobody's limit */
    memory->unused = memory->total - memory->used;
    return result;
}

/* One question for processes: where it is put to the driver, and in which form. */
struct listing {
    nvml_device device;
    enum mode mode;
    const char *symbol;           /* NULL: `details` */
    struct nvml_details *details; /* version and mode of the program's own */
    size_t row_size;
};

static int ask_driver(const struct listing *listing, unsigned *count, void *rows) {
    if (listing->symbol) {
        nvmlDeviceGetComputeRunningProcesses_function *real = /* all forms have its type */
            (nvmlDeviceGetComputeRunningProcesses_function *)nvml_function(listing->symbol);
        inside_driver++;
        int result = real ? real(listing->device, count, rows) : NVML_ERROR_FUNCTION_NOT_FOUND;
        inside_driver--;
        return result;
    }
    struct nvml_details details = *listing->details;
    details.count = *count;
    details.rows = rows;
    int result = NVML(nvmlDeviceGetRunningProcessDetailList, listing->device, &details);
    *count = details.count;
    return result;
}

static void write_row(const struct listing *listing, void *rows, unsigned index, const struct row *row) {
    memcpy((char *)rows + index * listing->row_size, row, listing->row_size);
}

/* The container's processes that use the device. */
struct known {
    const struct convgpu_process *process;
    unsigned count;
};

/* By the scheduler's ledger; how many there are, of which as many as fit are written. */
static unsigned list_compute(const struct listing *listing, struct known known, void *rows, unsigned room) {
    for (unsigned index = 0; index < known.count && index < room; index++) {
        struct row row = {.pid = known.process[index].pid,
                          .used = known.process[index].used,
                          .gpu_instance = NO_INSTANCE,
                          .compute_instance = NO_INSTANCE};
        write_row(listing, rows, index, &row);
    }
    return known.count;
}

static const struct convgpu_process *find_process(struct known known, unsigned host_pid) {
    for (unsigned index = 0; index < known.count; index++)
        if (known.process[index].host_pid == host_pid && host_pid != 0) return &known.process[index];
    return NULL;
}

/* Of the driver's `count` rows those of the container's processes, which the driver knows by the host's pids.
 */
static unsigned keep_own(const struct listing *listing, struct known known, const char *driver_rows,
                         unsigned count, void *rows, unsigned room) {
    unsigned kept = 0;
    for (unsigned index = 0; index < count; index++) {
        struct row row = {0};
        memcpy(&row, driver_rows + index * listing->row_size, listing->row_size);
        const struct convgpu_process *process = find_process(known, row.pid);
        if (!process) continue;
        row.pid = process->pid;
        if (kept < room) write_row(listing, rows, kept, &row);
        kept++;
    }
    return kept;
}

/* Graphics, and clients of MPS: the scheduler's ledger does not tell these from others. `there`: how many the
 * driver has of the whole card. */
static int list_others(const struct listing *listing, struct known known, unsigned there, unsigned *count,
                       void *rows) {
    unsigned room = *count;
    size_t size = (there + SPARE_ROWS) * listing->row_size;
    void *driver_rows = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (driver_rows == MAP_FAILED) return NVML_ERROR_MEMORY;
    there += SPARE_ROWS;
    int result = ask_driver(listing, &there, driver_rows);
    if (result == NVML_SUCCESS) *count = keep_own(listing, known, driver_rows, there, rows, room);
    munmap(driver_rows, size);
    return result;
}

static int list_known(const struct listing *listing, struct known known, unsigned there, unsigned *count,
                      void *rows) {
    unsigned room = *count;
    int result = NVML_SUCCESS;
    if (listing->mode == MODE_COMPUTE)
        *count = list_compute(listing, known, rows, room);
    else
        result = list_others(listing, known, there, count, rows);
    return result == NVML_SUCCESS && *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : result;
}

/* NVML's protocol: *count is the room in `rows`, then how many there are; too little room is an error that
 * still says the number. */
static int list(const struct listing *listing, unsigned *count, void *rows) {
    uint8_t uuid[CONVGPU_UUID_SIZE];
    unsigned there = 0;
    if (!count || (*count > 0 && !rows)) return ask_driver(listing, count, rows);
    int result = ask_driver(listing, &there, NULL);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE) return result;
    result = nvml_find_uuid(listing->device, uuid);
    if (result != NVML_SUCCESS) return result;
    int number = session_is_open() ? account_find(uuid) : -1;
    struct observation *observation = observer_ask(uuid, number < 0);
    if (!observation && number < 0) return NVML_ERROR_UNKNOWN;
    struct convgpu_process own = {.pid = (uint32_t)getpid()};
    if (number >= 0) own.used = account_used((uint32_t)number);
    struct known known = {&own, own.used > 0};
    if (observation) known = (struct known){observation->process, observation->figures.process_count};
    result = list_known(listing, known, there, count, rows);
    if (observation) observer_release(observation);
    return result;
}

#define LIST(suffix, name, kind, size)                                                                       \
    int hooked_nvmlDeviceGet##name##RunningProcesses##suffix(nvml_device device, unsigned *count,            \
                                                             void *rows) {                                   \
        struct listing listing = {.device = device,                                                          \
                                  .mode = kind,                                                              \
                                  .symbol = "nvmlDeviceGet" #name "RunningProcesses" #suffix,                \
                                  .row_size = size};                                                         \
        return list(&listing, count, rows);                                                                  \
    }
LIST(, Compute, MODE_COMPUTE, ROW_V1)
LIST(_v2, Compute, MODE_COMPUTE, ROW_V2)
LIST(_v3, Compute, MODE_COMPUTE, ROW_V2)
LIST(, Graphics, MODE_GRAPHICS, ROW_V1)
LIST(_v2, Graphics, MODE_GRAPHICS, ROW_V2)
LIST(_v3, Graphics, MODE_GRAPHICS, ROW_V2)
LIST(, MPSCompute, MODE_MPS, ROW_V1)
LIST(_v2, MPSCompute, MODE_MPS, ROW_V2)
LIST(_v3, MPSCompute, MODE_MPS, ROW_V2)

int hooked_nvmlDeviceGetRunningProcessDetailList(nvml_device device, struct nvml_details *details) {
    if (!details) return NVML(nvmlDeviceGetRunningProcessDetailList, device, details);
    struct listing listing = {
        .device = device, .mode = (enum mode)details->mode, .details = details, .row_size = ROW_DETAIL};
    return list(&listing, &details->count, details->rows);
}
