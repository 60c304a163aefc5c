/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry stays when its module is unloaded: the driver gives the handle again, and then it is set again.
 */
#include "functions/homes.h"

#include "accounting/allocations.h"
#include "tables/registry.h"

static struct allocations homes = ALLOCATIONS_INITIALIZER; /* by handle */

static uint64_t handle(const void *object) {
    return (uint64_t)(uintptr_t)object;
}

void homes_set(const void *object, CUcontext context) {
    struct allocation replaced, entry = {.address = handle(object), .context = handle(context) >> 1};
    if (object && context) (void)allocations_insert(&homes, entry, &replaced);
}

CUcontext homes_find(const void *object) {
    struct allocation entry;
    bool found = allocations_find(&homes, handle(object), &entry) && !entry.dying;
    return found ? (CUcontext)(uintptr_t)(entry.context << 1) : NULL;
}

static void homes_mark(CUcontext context) {
    allocations_mark(&homes, handle(context));
}

static void homes_unmark(CUcontext context) {
    allocations_unmark(&homes, handle(context));
}

static void homes_drop(CUcontext context, uint64_t *sizes) {
    (void)sizes;
    allocations_drop(&homes, handle(context), NULL, NULL);
}

static void homes_reset(void) {
    allocations_reset(&homes);
}
REGISTER_FAMILY(homes, .mark = homes_mark, .unmark = homes_unmark, .drop = homes_drop, .reset = homes_reset);
