/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes from this process's headroom, or past it from the scheduler. The lower layer of charge.h: what
 * contexts grew is not measured here. Devices are numbers of account.h.
 */
#ifndef CONVGPU_HEADROOM_H
#define CONVGPU_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "tables/driver.h"

/* What one call of CUDA is charged with. `device`, `call` and `current` are set by the call's hook, the rest
 * by the functions here and in charge.h. It lies on the stack of the calling thread and needs no lock. */
struct charge {
    const char *call; /* name of the CUDA call, for people */
    int device;
    bool movable;   /* the memory can leave the device: it is not fixed (account.h) */
    bool current;   /* the thread's context is on the device, so that the driver's free memory can be seen */
    bool due;       /* the contexts are to be measured before more is asked for (context_growth.h) */
    bool context;   /* it is a context, of which a program cannot take less */
    bool traced;    /* the last headroom_take() is to be reported (headroom_report()) */
    uint64_t asked; /* bytes that the program named, for that report; 0: as many as are charged */
    uint64_t size;  /* bytes that are charged now */
    uint64_t pending;  /* of these the last ones, for which the driver was not asked yet */
    uint64_t settling; /* bytes of the device that the driver may not have freed yet, by the last answer */
};

/* Adds `size` bytes to the charge from the headroom alone, without a pause: whether they could be had. */
bool headroom_take(struct charge *charge, uint64_t size);

/* Reports `size` bytes of the charge, or what the program named, to who follows the container's calls. Keeps
 * errno. */
void headroom_report(const struct charge *charge, uint64_t size);

/* Takes back what the last headroom_take() added. */
void headroom_untake(struct charge *charge);

/* Adds `size` bytes to the charge: from the headroom, or from what this process's families can give back, or
 * by the scheduler, pausing the calling thread for as long as it does not answer. `refused`: the driver
 * refused these bytes, so that only the scheduler can say when there is room. No lock may be held but that of
 * a context's creation. CUDA_ERROR_OUT_OF_MEMORY: rejected, said on stderr, and nothing was added. */
CUresult headroom_add(struct charge *charge, uint64_t size, bool refused);

/* `size` bytes that this process uses become fixed, for the call of that name; asks if need be, and does not
 * wait for long. CUDA_ERROR_OUT_OF_MEMORY: there is no room for more of them, which was said. */
CUresult headroom_fix(const char *call, int device, uint64_t size);

/* Takes bytes for fixed memory from the headroom alone. */
bool headroom_take_fixed(int device, uint64_t size);

/* Says that the driver refuses what was granted: one line, then only for debugging, as rejections. */
void headroom_say_refusal(const struct charge *charge, uint64_t size);

/* Gives bytes back, and reports that if the scheduler asked for it: of fixed memory, of movable memory, and
 * of what the charge is for. */
void headroom_give(int device, uint64_t size);
void headroom_give_movable(int device, uint64_t size);
void headroom_give_charged(const struct charge *charge, uint64_t size);

#endif
