/* SPDX-License-Identifier: Apache-2.0 */
#include "base/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void take_descriptors(struct msghdr *message, struct packet *packet) {
    int found = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(part) + i * sizeof descriptor, sizeof descriptor);
            if (found < PACKET_DESCRIPTORS) {
                packet->descriptor[found++] = descriptor;
            } else {
                close(descriptor);
            }
        }
    }
}

enum packet_outcome packet_read(int socket, struct packet *packet) {
    char control[CMSG_SPACE(PACKET_DESCRIPTORS * sizeof(int))];
    struct iovec part = {.iov_base = packet->bytes, .iov_len = sizeof packet->bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    for (int i = 0; i < PACKET_DESCRIPTORS; i++) packet->descriptor[i] = -1;
    ssize_t size;
    do {
        size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (size < 0 && errno == EINTR);
    if (size < 0) return errno == EAGAIN ? PACKET_NONE : PACKET_END;
    take_descriptors(&message, packet);
    packet->size = (size_t)size;
    if (size > 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) return PACKET_READ;
    packet_close(packet);
    return PACKET_END;
}

void packet_close(struct packet *packet) {
    for (int i = 0; i < PACKET_DESCRIPTORS; i++) {
        if (packet->descriptor[i] >= 0) close(packet->descriptor[i]);
        packet->descriptor[i] = -1;
    }
}
