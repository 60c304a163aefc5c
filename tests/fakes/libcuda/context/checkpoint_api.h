/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoint calls of the CUDA driver's binary interface (CUDA 12.8).
 */
#ifndef SIMULATED_CHECKPOINT_API_H
#define SIMULATED_CHECKPOINT_API_H

#include "libcuda/cuda_api.h"

typedef struct {
    unsigned timeout_ms, reserved;
    uint64_t more[7];
} CUcheckpointLockArgs;
_Static_assert(sizeof(CUcheckpointLockArgs) == 64, "as in cuda.h");

CUDA_EXPORT CUresult cuCheckpointProcessGetState(int pid, int *state);
CUDA_EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread);
CUDA_EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *arguments);
CUDA_EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, void *arguments);
CUDA_EXPORT CUresult cuCheckpointProcessRestore(int pid, void *arguments);
CUDA_EXPORT CUresult cuCheckpointProcessUnlock(int pid, void *arguments);

#endif
