/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory management: addresses and physical memory apart.
 */
#include "program.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* create SIZE TYPE ORDINAL: physical memory at that location. */
static CUresult create(const size_t *number, uint64_t *handle) {
    struct {
        struct memory_properties read;
        char rest[16];
    } properties = {.read = {.type = 1,
                             .handle_types = number[1] == 2 ? 0 : 1, /* none for memory of the host */
                             .location = {.type = (int)number[1], .ordinal = (int)number[2]}}};
    _Static_assert(sizeof properties == 32, "as in cuda.h");
    return cuda.cuMemCreate(handle, number[0], &properties.read, 0);
}

/* reserve SIZE: addresses. */
static CUresult reserve(size_t size, uint64_t *address) {
    CUresult (*call)(uint64_t *, size_t, size_t, uint64_t, unsigned long long) = (CUresult (*)(
        uint64_t *, size_t, size_t, uint64_t, unsigned long long))driver_symbol("cuMemAddressReserve");
    return call(address, size, 0, 0, 0);
}

static CUresult export_handle(uint64_t handle, uint64_t *shareable) {
    int descriptor = 0x5a5a;
    CUresult (*call)(void *, uint64_t, int, unsigned long long) = (CUresult (*)(
        void *, uint64_t, int, unsigned long long))driver_symbol("cuMemExportToShareableHandle");
    CUresult result = call(&descriptor, handle, 1, 0);
    *shareable = (uint64_t)descriptor;
    return result;
}

/* lendfd DESCRIPTOR: a child that has it, too, until it is ended. */
static pid_t lend(void) {
    pid_t parent = getpid(), child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) pause(); /* the parent may have ended before */
    _exit(0);
}

/* maptimes HANDLE ADDRESS STRIDE COUNT: maps a handle of 2 MiB so often, to be written; prints how often that
 * succeeded. */
static CUresult map_times(const size_t *number, uint64_t *done) {
    const int access[] = {1, 0, 3};
    CUresult result = CUDA_SUCCESS;
    CUresult (*call)(uint64_t, size_t, const int *, size_t) =
        (CUresult (*)(uint64_t, size_t, const int *, size_t))driver_symbol("cuMemSetAccess");
    for (*done = 0; result == CUDA_SUCCESS && *done < number[3]; *done += result == CUDA_SUCCESS) {
        size_t address = number[1] + *done * number[2];
        result = cuda.cuMemMap(address, 2 << 20, 0, number[0], 0);
        if (result == CUDA_SUCCESS) result = call(address, 2 << 20, access, 1);
    }
    return result;
}

/* registertimes STRIDE COUNT: registers pages that lie so far apart; prints how many. */
static CUresult register_times(const size_t *number, uint64_t *done) {
    CUresult result = CUDA_SUCCESS;
    char *area = mmap(NULL, number[0] * number[1], PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (*done = 0; result == CUDA_SUCCESS && *done < number[1]; *done += result == CUDA_SUCCESS)
        result = cuda.cuMemHostRegister_v2(area + *done * number[0], 4096, 0);
    return result;
}

CUresult run_virtual(const char *command, const size_t *number, char *values) {
    CUresult result = -1;
    uint64_t written = 0x5a5a;
    if (strcmp(command, "map") == 0) return cuda.cuMemMap(number[0], number[1], number[2], number[3], 0);
    if (strcmp(command, "unmap") == 0) return cuda.cuMemUnmap(number[0], number[1]);
    if (strcmp(command, "releasehandle") == 0) return cuda.cuMemRelease(number[0]);
    if (strcmp(command, "create") == 0) result = create(number, &written);
    if (strcmp(command, "reserve") == 0) result = reserve(number[0], &written);
    if (strcmp(command, "retainhandle") == 0)
        result = cuda.cuMemRetainAllocationHandle(&written, (void *)number[0]);
    if (strcmp(command, "export") == 0) result = export_handle(number[0], &written);
    if (strcmp(command, "import") == 0)
        result = cuda.cuMemImportFromShareableHandle(&written, (void *)number[0], 1);
    if (strcmp(command, "maptimes") == 0) result = map_times(number, &written);
    if (strcmp(command, "registertimes") == 0) result = register_times(number, &written);
    if (strcmp(command, "pinned") == 0) result = cuda.cuMemHostAlloc((void **)&written, number[0], 0);
    if (strcmp(command, "pinned2") == 0) result = cuda.cuMemAllocHost_v2((void **)&written, number[0]);
    if (strcmp(command, "unpin") == 0) return cuda.cuMemFreeHost((void *)number[0]);
    if (strcmp(command, "closefd") == 0) return close((int)number[0]);
    if (strcmp(command, "lendfd") == 0) {
        written = (uint64_t)lend();
        result = 0;
    }
    if (result != -1) sprintf(values, " %#lx", (unsigned long)written);
    return result;
}
