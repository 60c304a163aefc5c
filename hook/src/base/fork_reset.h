/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent's sockets, threads, memory and contexts are not the child's. Each file names the function that
 * empties its variables and renews its locks in the child of a fork, where no other thread is; session.c
 * calls all of them, in no particular order.
 */
#ifndef CONVGPU_FORK_RESET_H
#define CONVGPU_FORK_RESET_H

#define RESET_IN_CHILD(function)                                                                             \
    static void (*const reset_in_child_##function)(void)                                                     \
        __attribute__((section("convgpu_fork_reset"), used)) = function

#endif
