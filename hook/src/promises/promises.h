/* SPDX-License-Identifier: Apache-2.0
 *
 * What contexts will take later than the call that made it certain: heaps and buffers of printf whose limit
 * was set, stacks of kernels that were recorded, variables of libraries, the work of graphs, the driver's
 * own code. It is charged when it is promised, and the driver does not show it yet: it is no fall of what the
 * contexts take (context_growth.h). A promise is kept when at least half of it (of the driver's code nine
 * tenths) is seen at once, or together with others: other growth is smaller.
 */
#ifndef CONVGPU_PROMISES_H
#define CONVGPU_PROMISES_H

#include "tables/driver.h"

enum promise_kind {
    PROMISE_STACKS,
    PROMISE_PRINTF,
    PROMISE_HEAP,
    PROMISE_VARIABLES,
    PROMISE_GRAPHS,
    PROMISE_LAUNCHES,
    PROMISE_DRIVER_CODE
};

/* To whom it is promised. `owner` is the module or the library of variables, of a graph's work one
 * for each call, 0 otherwise. */
struct promise {
    enum promise_kind kind;
    int device;
    CUcontext context;
    uint64_t owner;
};

/* Each takes a lock of its own, a leaf. */

/* Promises `size` bytes more, which are charged already; remembers the promise for as long as its context and
 * its owner live, though nothing is left of it. False: no room for another one, and nothing happened. */
bool promises_add(const struct promise *promise, uint64_t size);

/* What was promised to one owner is another one's from now on. */
void promises_rename(uint64_t from, uint64_t to);

/* Whether it was ever promised. */
bool promises_know(const struct promise *promise);

/* Takes back at most `size` bytes of what is not kept yet; returns how many. */
uint64_t promises_take_back(const struct promise *promise, uint64_t size);

/* Bytes of it that are not kept yet. */
uint64_t promises_left(const struct promise *promise);

/* Of what is left of it `size` bytes, or all, come next and by themselves, the rest later; 0: that is not
 * known. Returns what was to come next and is not kept. */
uint64_t promises_expect(const struct promise *promise, uint64_t size);

/* Bytes that are promised on the device and not kept yet. */
uint64_t promises_open(int device);

/* The driver shows `rise` bytes more than is charged and not promised: returns what was promised of it, which
 * may be more. What was promised to `context`, which is current and so most likely grew, comes first. */
uint64_t promises_keep(int device, CUcontext context, uint64_t rise);

/* Forgets all promises to the context, or of the owner; adds what was not kept to sizes[device]. */
void promises_forget_context(CUcontext context, uint64_t *sizes);
void promises_forget_owner(uint64_t owner, uint64_t *sizes);

/* Shows each that is not kept yet to `visit`, with the lock held. */
typedef void promises_visit(const struct promise *promise, uint64_t size, void *argument);
void promises_enumerate(promises_visit *visit, void *argument);

#endif
