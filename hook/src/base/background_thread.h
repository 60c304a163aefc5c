/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONVGPU_BACKGROUND_THREAD_H
#define CONVGPU_BACKGROUND_THREAD_H

#include <stdbool.h>

/* Starts a detached thread of the hook's own, in which all signals are blocked: handlers belong to the
 * program's threads. False when the system has no room for one. */
bool background_thread(void *(*body)(void *));

#endif
