/* SPDX-License-Identifier: Apache-2.0 */
#include "base/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* There is room for all that a packet can have, so that the kernel drops none here. */
static void take_descriptors(struct msghdr *message, struct packet *packet) {
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        unsigned count = (unsigned)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(packet->descriptor + packet->count, CMSG_DATA(part), count * sizeof(int));
        packet->count += count;
    }
}

enum packet_outcome packet_read(int socket, struct packet *packet) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(PACKET_DESCRIPTORS * sizeof(int))];
    struct iovec part = {.iov_base = packet->bytes, .iov_len = sizeof packet->bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    packet->count = 0;
    ssize_t size;
    do {
        size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (size < 0 && errno == EINTR);
    if (size < 0) return errno == EAGAIN ? PACKET_NONE : PACKET_END;
    take_descriptors(&message, packet);
    packet->size = (size_t)size;
    return size > 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 ? PACKET_READ : PACKET_END;
}

int packet_take(struct packet *packet, unsigned index) {
    if (index >= packet->count) return -1;
    int descriptor = packet->descriptor[index];
    packet->descriptor[index] = -1;
    return descriptor;
}
