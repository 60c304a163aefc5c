/* SPDX-License-Identifier: Apache-2.0
 *
 * The first launch of a function in a context. What it will take is charged before: stacks (stacks.h) and the
 * variables of its library (module.h). Its code is loaded before, and measured. What it took nevertheless
 * (the heap of the first kernel that allocates, a few MiB) is measured after. Later launches pass unseen
 * (functions.h).
 */
#ifndef CONVGPU_LAUNCH_H
#define CONVGPU_LAUNCH_H

#include "code/sample.h"

/* One first launch. It lies on the stack of the calling thread. */
struct launch {
    word function;
    struct sample before; /* `device` is negative when nothing is to be done afterwards */
    uint32_t generation;
    uint64_t stacks, raised; /* bytes of each thread's stack before and after */
    bool pushed;             /* the context that it runs in was made current */
};

/* Before the launch, with no lock held. CUDA_ERROR_OUT_OF_MEMORY: what it needs cannot be had, and it must
 * not be made; launch_end() is not called then. May pause. */
CUresult launch_begin(struct launch *launch, word function, word stream);

/* After it. */
void launch_end(struct launch *launch, CUresult result);

/* The same for a function that is recorded in a graph of the context (NULL: the current one), and launched
 * later. */
CUresult launch_record(word function, CUcontext context);

/* For cuLaunchCooperativeKernelMultiDevice. */
CUresult launch_begin_several(const struct device_launch *launches, unsigned count);

#endif
