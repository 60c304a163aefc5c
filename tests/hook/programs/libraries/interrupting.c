/* SPDX-License-Identifier: Apache-2.0
 *
 * Interrupts its thread while the thread sends an ALLOCATE: later than the call, and before its wait. Only
 * where the program handles SIGINT.
 */
#include <convgpu/protocol.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

ssize_t send(int socket, const void *bytes, size_t size, int flags) {
    struct convgpu_header header = {0};
    struct sigaction action;
    if (size >= sizeof header) memcpy(&header, bytes, sizeof header);
    sigaction(SIGINT, NULL, &action);
    ssize_t sent = sendto(socket, bytes, size, flags, NULL, 0);
    if (header.kind == CONVGPU_ALLOCATE && action.sa_handler != SIG_DFL) raise(SIGINT);
    return sent;
}
