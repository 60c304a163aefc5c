/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream takes queues, half a MiB of the device (H200, driver 580), which the context keeps for the next
 * one when the stream ends. So it is measured, and none is made while something is owed.
 */
#ifndef CONVGPU_QUEUES_H
#define CONVGPU_QUEUES_H

#include "tables/driver.h"

/* Calls `attempt`, which makes a stream in the current context, and charges what that took; `made` says
 * whether it was. The attempt's own error, or CUDA_ERROR_OUT_OF_MEMORY: what was made cannot be had, and is
 * owed, or is owed from before, and nothing was made. May pause. One thread at a time, also while that one is
 * paused: of many that come at once, each must see what the one before it took. Called with no lock held. */
typedef CUresult queues_attempt(void *arguments);
CUresult queues_take(const char *call, queues_attempt *attempt, void *arguments, bool *made);

#endif
