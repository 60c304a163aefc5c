/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry stays when its node ends. A later node of the same handle is not asked about unless it is
 * conditional as well, and then it has set the entry again: no conditional node is cloned or captured
 * (cuGraphClone, CUDA_CHILD_GRAPH_NODE_PARAMS).
 */
#include "graphs/bodies.h"

#include "accounting/allocations.h"
#include "tables/registry.h"

static struct allocations known = ALLOCATIONS_INITIALIZER; /* by node; `size`: bodies; `value`: the list */

static uint64_t handle(const void *object) {
    return (uint64_t)(uintptr_t)object;
}

void bodies_set(CUgraphNode node, const struct conditional_node *made) {
    struct allocation replaced,
        entry = {.address = handle(node), .size = made->count, .value = handle(made->bodies)};
    if (node && made->bodies) (void)allocations_insert(&known, entry, &replaced);
}

const CUgraph *bodies_find(CUgraphNode node, size_t *count) {
    struct allocation entry;
    bool found = allocations_find(&known, handle(node), &entry);
    *count = found ? entry.size : 0;
    return found ? (const CUgraph *)(uintptr_t)entry.value : NULL;
}

static void bodies_reset(void) {
    allocations_reset(&known);
}
REGISTER_FAMILY(bodies, .reset = bodies_reset);
