/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets of SOCK_SEQPACKET sockets, with descriptors.
 */
#ifndef PORTER_PACKET_H
#define PORTER_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PACKET_DESCRIPTORS 253 /* SCM_MAX_FD: the most that a packet can have */

struct packet {
    _Alignas(8) char bytes[2048]; /* the longest frame: SESSION with 63 devices */
    size_t size;
    unsigned count;                     /* of its descriptors */
    int descriptor[PACKET_DESCRIPTORS]; /* -1: taken */
};

enum packet_outcome { PACKET_READ, PACKET_NONE, PACKET_END };

/* Reads one packet without waiting. END: the peer is gone, or the packet is longer than any frame. The caller
 * owns the descriptors, also at the END. */
enum packet_outcome packet_read(int socket, struct packet *packet);

/* Returns a descriptor, which is the caller's from now on; -1: there is none. */
int packet_take(struct packet *packet, unsigned index);

#endif
