/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory across processes. A shareable handle is a socket in which one message waits: what the
 * memory is, the file of its contents, and a reference (exports.h). Who imports it looks at the message and
 * leaves it there; whatever becomes of the socket, the kernel keeps and drops what is in it.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcuda/virtual/virtual.h"
#include "libcuda/work/contents.h"
#include "simulated/exports.h"
#include "simulated/lock.h"

#define SHARED_MAGIC UINT64_C(0x3253485055504743)
#define DESCRIPTORS  2

struct shared_physical {
    uint64_t magic;
    uint64_t size;
    uint8_t uuid[16]; /* of the device */
    uint32_t exported, reserved;
    struct process_identity owner;
    CUmemGenericAllocationHandle handle; /* with the next, which memory of the owner it is */
    uint64_t serial;
};

union ancillary {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
};

bool descriptors_send(int socket, const void *data, size_t size, const int *descriptors, unsigned count) {
    union ancillary ancillary = {0};
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    ancillary.header = (struct cmsghdr){CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&ancillary.header), descriptors, count * sizeof(int));
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

static unsigned row_of(const struct physical *physical) {
    return driver.row[physical->properties.location.id];
}

/* From now on others may refer to it. */
static bool enter(struct physical *physical) {
    if (physical->contents < 0) physical->contents = contents_make(physical->size);
    if (physical->contents < 0) return false;
    if (physical->exported != NOT_EXPORTED) return true;
    physical->exported = export_enter(&driver.state, row_of(physical), physical->size, &physical->reference);
    return physical->exported != NOT_EXPORTED;
}

static bool send_message(int socket, const struct physical *physical) {
    struct shared_physical shared = {
        .magic = SHARED_MAGIC,
        .size = physical->size,
        .exported = physical->exported,
        .owner = process_identity(),
        .handle = (uint64_t)(uintptr_t)physical,
        .serial = physical->serial,
    };
    memcpy(shared.uuid, driver.state.configuration.device[row_of(physical)].uuid, sizeof shared.uuid);
    const int descriptors[DESCRIPTORS] = {physical->contents, physical->reference};
    return descriptors_send(socket, &shared, sizeof shared, descriptors, DESCRIPTORS);
}

int physical_share(struct physical *const *pieces, unsigned count) {
    int ends[2];
    bool sent = true;
    for (unsigned i = 0; i < count; i++) {
        if (!enter(pieces[i])) return -1;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    for (unsigned i = 0; sent && i < count; i++) sent = send_message(ends[1], pieces[i]);
    close(ends[1]);
    if (sent) return ends[0];
    close(ends[0]);
    return -1;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct physical *physical = physical_find(handle);
    bool valid = shareable != NULL && physical != NULL && flags == 0 &&
                 type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                 physical->properties.handle_types == type;
    if (!valid) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!on_device(&physical->properties)) return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    if (physical->imported) return driver_leave(CUDA_ERROR_INVALID_VALUE); /* as on an H200 */
    int descriptor = physical_share(&physical, 1);
    if (descriptor < 0) return driver_leave(CUDA_ERROR_OPERATING_SYSTEM);
    memcpy(shareable, &descriptor, sizeof descriptor);
    return driver_leave(CUDA_SUCCESS);
}

/* What the socket holds, and descriptors of the importer's own. */
static bool receive(int socket, struct shared_physical *shared, int descriptors[DESCRIPTORS]) {
    union ancillary ancillary = {0};
    struct iovec part = {shared, sizeof *shared};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof ancillary.bytes};
    ssize_t length = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = length < 0 ? NULL : CMSG_FIRSTHDR(&message);
    bool whole = header != NULL && header->cmsg_type == SCM_RIGHTS &&
                 header->cmsg_len == CMSG_LEN(DESCRIPTORS * sizeof(int));
    if (whole) memcpy(descriptors, CMSG_DATA(header), DESCRIPTORS * sizeof(int));
    if (whole && length == sizeof *shared && shared->magic == SHARED_MAGIC) return true;
    for (int i = 0; whole && i < DESCRIPTORS; i++) close(descriptors[i]);
    return false;
}

/* This process's own memory, so that it is not taken for another's; or NULL. */
static struct physical *find_own(const struct shared_physical *shared) {
    struct process_identity own = process_identity();
    if (own.pid != shared->owner.pid || own.start_time != shared->owner.start_time ||
        own.pid_namespace != shared->owner.pid_namespace) {
        return NULL;
    }
    struct physical *physical = physical_find(shared->handle);
    return physical != NULL && physical->serial == shared->serial ? physical : NULL;
}

static int device_by_uuid(const uint8_t *uuid) {
    for (int device = 0; device < driver.device_count; device++) {
        const uint8_t *own = driver.state.configuration.device[driver.row[device]].uuid;
        if (memcmp(own, uuid, 16) == 0) return device;
    }
    return -1;
}

/* The physical memory of the message; the descriptors become its own. */
static struct physical *import(const struct shared_physical *shared, int device, const int *descriptors) {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    struct physical *physical = physical_make(shared->size, &properties, true), *own = find_own(shared);
    if (physical == NULL) return NULL;
    if (own == NULL) {
        physical->contents = descriptors[0];
        physical->reference = descriptors[1];
        physical->exported = shared->exported;
        return physical;
    }
    for (int i = 0; i < DESCRIPTORS; i++) close(descriptors[i]);
    physical->original = own; /* another handle, as on a card */
    own->aliases++;
    return physical;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS) return result;
    struct shared_physical shared;
    int descriptors[DESCRIPTORS], given = (int)(uintptr_t)shareable; /* the caller's, and stays open */
    bool valid = handle != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!valid || !receive(given, &shared, descriptors)) return driver_leave(CUDA_ERROR_INVALID_VALUE);
    int device = device_by_uuid(shared.uuid);
    struct physical *physical = device < 0 ? NULL : import(&shared, device, descriptors);
    for (int i = 0; physical == NULL && i < DESCRIPTORS; i++) close(descriptors[i]);
    if (device < 0) return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (physical == NULL) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *handle = (uint64_t)(uintptr_t)physical;
    return driver_leave(CUDA_SUCCESS);
}
