/* SPDX-License-Identifier: Apache-2.0
 *
 * The current context, and the driver's free memory before a call that may make it grow. The free memory is a
 * hint, which other processes change too: what the context took is measured (context_growth.h).
 */
#ifndef CONVGPU_SAMPLE_H
#define CONVGPU_SAMPLE_H

#include "tables/driver.h"

struct sample {
    int device; /* negative: there is no session, no context, or no limit on its device */
    CUcontext context;
    bool seen; /* the driver can be asked what the process takes, and `unused` is known */
    size_t unused;
};

struct sample sample_take(void);

/* If the free memory fell since, or something is owed, measures, and charges what the contexts grew:
 * CUDA_ERROR_OUT_OF_MEMORY if that cannot be had, and it is owed. May pause. The sample is that of now then.
 */
CUresult sample_charge_fall(struct sample *before, const char *call);

/* Bytes by which the free memory fell since; 0 as well if nobody can tell. */
uint64_t sample_fall(const struct sample *before);

/* Whether the free memory fell since; true as well if nobody can tell. */
bool sample_fell(const struct sample *before);

/* If the free memory rose since, measures, and gives back what the contexts do not take any more. */
void sample_see_rise(const struct sample *before);

#endif
