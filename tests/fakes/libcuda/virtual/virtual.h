/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory, as virtual.c (addresses) and physical.c (handles) share it. driver.mutex held, everywhere.
 */
#ifndef SIMULATED_VIRTUAL_H
#define SIMULATED_VIRTUAL_H

#include "libcuda/driver.h"
#include "libcuda/handles.h"
#include "libcuda/virtual/virtual_api.h"

#define GRANULARITY (UINT64_C(2) << 20)

/* Lives while it is mapped or a handle of it is unreleased. */
struct physical {
    struct handle handle; /* forgotten while no handle is unreleased */
    uint64_t size;
    uint64_t serial; /* unique in the process */
    CUmemAllocationProp properties;
    bool imported;             /* from another process, which counts it, or of `original` */
    struct physical *original; /* what this process exported itself: its memory under another handle */
    unsigned aliases;          /* whose `original` is this, and bindings to multicast objects */
    unsigned handles;          /* unreleased ones */
    int contents;              /* what was written (contents.h); -1: nothing yet, all bytes are 0 */
    int reference;             /* to the row; -1 */
    uint32_t exported;         /* row of simulated/exports.h; NOT_EXPORTED */
    struct block *mappings;    /* their `size` and `counted` are equal, their owner is this */
};

/* A new one with one handle, or NULL if the process has no memory. */
struct physical *physical_make(uint64_t size, const CUmemAllocationProp *properties, bool imported);

bool on_device(const CUmemAllocationProp *properties);

/* The physical memory of an unreleased handle, or NULL. */
struct physical *physical_find(CUmemGenericAllocationHandle handle);

/* Ends the physical memory if nothing refers to it any more. */
void physical_end_if_unused(struct physical *physical);

/* Leaves a message with descriptors (at most 2) in a socket; whether that was possible. */
bool descriptors_send(int socket, const void *data, size_t size, const int *descriptors, unsigned count);

/* A new descriptor that holds all of them, or -1. */
int physical_share(struct physical *const *pieces, unsigned count);

/* Ends a multicast object, and what is bound to it is not bound any more. False if it is none. */
bool multicast_release(CUmemGenericAllocationHandle handle);

/* Whether the address is reserved, mapped or not. */
bool is_reserved(uint64_t address);

/* Where the reservation of the address begins, and its size; unchanged if there is none. */
void reservation_bounds(uint64_t address, uint64_t *start, uint64_t *size);

/* The mapping that the address lies in, or NULL. */
struct block *mapping_at(uint64_t address);

#endif
