/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets of SOCK_SEQPACKET sockets, with descriptors.
 */
#ifndef PORTER_PACKET_H
#define PORTER_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PACKET_DESCRIPTORS 2

struct packet {
    _Alignas(8) char bytes[2048]; /* the longest frame: SESSION with 63 devices */
    size_t size;
    int descriptor[PACKET_DESCRIPTORS]; /* -1: none */
};

enum packet_outcome { PACKET_READ, PACKET_NONE, PACKET_END };

/* Reads one packet without waiting. END: the peer is gone, or the packet is longer than any frame. The caller
 * owns the descriptors. */
enum packet_outcome packet_read(int socket, struct packet *packet);

/* Closes the descriptors that are still in the packet. */
void packet_close(struct packet *packet);

#endif
