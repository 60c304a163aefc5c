/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes of executable graphs, charged as work.h says.
 */
#ifndef CONVGPU_GRAPH_UPDATE_H
#define CONVGPU_GRAPH_UPDATE_H

#include "tables/driver.h"

/* One try of the driver's call. */
typedef CUresult graph_change(void *arguments);

/* Changes `exec` into `graph`, or (`child`) a part of it into that. */
CUresult graph_update(CUgraphExec exec, CUgraph graph, bool child, graph_change *change, void *arguments);

#endif
