/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent's sockets, threads, memory and contexts are not the child's. Each file names the function by
 * which it forgets them, and its locks, in the child of a fork, where no other thread is; session.c calls all
 * of them.
 */
#ifndef CONVGPU_FORGET_H
#define CONVGPU_FORGET_H

#define FORGET_IN_CHILD(function)                                                                            \
    static void (*const forget_##function)(void) __attribute__((section("convgpu_forget"), used)) = function

#endif
