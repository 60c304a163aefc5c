/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a signal that came while a thread was paused asks for its end. An interpreter takes note of Ctrl-C
 * in its handler and ends what it does when it runs again: that is never, while a CUDA call of it is paused.
 * So then the pause has to end.
 */
#ifndef CONVGPU_INTERRUPT_H
#define CONVGPU_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* Holds back SIGINT, SIGTERM and SIGQUIT for this thread until interrupt_let_go(), which has to follow right
 * before the wait: one that came earlier would be handled by the program, and the wait would not know of it.
 */
void interrupt_hold(sigset_t *before);

/* Lets them go: handlers run now. Whether one was held back that would have ended the wait; notes it for
 * interrupt_is_recent(). */
bool interrupt_let_go(const sigset_t *before);

/* After an untimed FUTEX_WAIT has returned EINTR: whether that was SIGINT, SIGTERM or SIGQUIT, beyond doubt.
 * The kernel does not say which; but only a handler without SA_RESTART ends such a wait, so it is certain
 * when no other signal has one. Also notes it for interrupt_is_recent(). */
bool interrupt_asked(void);

/* The same after a wait with a time, as nanosleep(), which any handler ends, also one with SA_RESTART: so it
 * is certain only when no other signal has a handler at all. */
bool interrupt_asked_asleep(void);

/* Whether this thread was interrupted within the last two seconds. Allocators try again when they are refused
 * (PyTorch frees what it has cached first): that must not be paused anew. */
bool interrupt_is_recent(void);

#endif
