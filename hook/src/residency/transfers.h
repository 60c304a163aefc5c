/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces on their way between the device and the host, by the porter. A piece is unmapped only after the
 * porter has its copy, and is out only until the porter has filled it; what had no answer when a carrier
 * broke is asked for again on the next one. The mover's thread alone.
 */
#ifndef CONVGPU_TRANSFERS_H
#define CONVGPU_TRANSFERS_H

#include "tables/driver.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes that have moved since the last report, and the driver's error that ended the order (0: none). */
struct transfer_report {
    bool in, ended;
    bool fewer; /* were out than the scheduler knew */
    uint32_t row;
    uint64_t size;
    CUresult refused;
};

/* Begins to move at least `size` bytes of the device, in or out; an order before it ends. `row` goes to the
 * porter and into the report. */
void transfers_begin(bool in, int device, uint32_t row, uint64_t size);

/* Begins a carrier that is offered: says what is out, and asks again for what had no answer. */
void transfers_tend_carrier(void);

/* Whether an order is not finished, or pieces are on their way. */
bool transfers_are_active(void);

/* Goes on: asks for pieces, and waits at most `milliseconds` for an answer. True: *report is to be sent. */
bool transfers_step(int milliseconds, struct transfer_report *report);

/* Forgets what is on its way out, which stays on the device: for the time without a carrier. */
void transfers_cancel_out(void);

/* Another scheduler will be told where everything is: what moved before is not reported to it, and nothing
 * more moves than what is on its way in. */
void transfers_settle(void);

/* A piece that was out was freed: the porter drops its copy. */
void transfers_forget(int device, uint64_t piece, uint64_t size);

#endif
