/* SPDX-License-Identifier: Apache-2.0
 *
 * The bodies of conditional nodes. The driver (before CUDA 13.2) tells them once, when a node is made.
 */
#ifndef CONVGPU_GRAPH_BODIES_H
#define CONVGPU_GRAPH_BODIES_H

#include "tables/driver.h"

#include <stddef.h>

/* The node was made of these parameters. Without memory for the record, it has no bodies. */
void bodies_set(CUgraphNode node, const struct conditional_node *made);

/* The bodies of a node that is conditional, and their number. */
const CUgraph *bodies_find(CUgraphNode node, size_t *count);

#endif
