/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs, as the rest of the simulated driver sees them. driver.mutex held, everywhere.
 *
 * An allocation of a graph is live from a launch until it is freed; one that the graph frees itself is live
 * only within a launch, which is over when the call returns. The physical memory stays
 * reserved until cuDeviceGraphMemTrim, and serves the next launch of any graph.
 */
#ifndef SIMULATED_GRAPH_H
#define SIMULATED_GRAPH_H

#include "libcuda/driver.h"
#include "libcuda/graph/graph_api.h"
#include "libcuda/handles.h"
#include "libcuda/work/operation.h"

/* What one launch holds of a device, until the last of its live allocations is freed. */
struct graph_hold {
    CUdevice device;
    uint64_t size;
    unsigned live;
};

struct node {
    struct handle handle;
    int type;             /* CU_GRAPH_NODE_TYPE_* */
    struct graph *graph;  /* NULL: destroyed, and here only for its live allocation */
    struct node *next;    /* of the graph, in the order in which they were added */
    struct node **before; /* those that it waits for */
    size_t before_count;
    struct graph *child;   /* that runs in its place, or NULL */
    struct graph **bodies; /* of a conditional node; the program's as well, for as long as it lives */
    unsigned body_count;
    bool continued;             /* one that waits for it runs in its chain (graph_work.c) */
    uint64_t room;              /* bytes for the parameters of what an executable graph does in its place */
    uint64_t address;           /* of what it allocates or frees */
    struct operation operation; /* what else it does */
    /* Of an allocation: */
    CUdevice device;
    uint64_t size;
    struct block *range;
    struct block *live;               /* NULL, or the one block */
    struct graph_hold *hold;          /* where the live memory is */
    bool freed_here, freed_elsewhere; /* by a node of this, or of another graph */
    struct node *next_allocation;     /* of all graphs */
};

struct graph {
    struct handle handle;
    struct node *nodes;
    unsigned count;
    unsigned instances;  /* living executable graphs */
    unsigned references; /* the instances, and the program until it destroys the graph */
};

/* A capture on its way. */
struct capture {
    struct graph *graph;
    struct stream *origin; /* in which it began */
    int mode;              /* CU_STREAM_CAPTURE_MODE_* */
    pthread_t thread;      /* that began it */
    bool invalid;          /* by a call that may not happen meanwhile */
    struct capture *next;
};

bool capture_any(void);

/* Whether this thread may not make an unsafe call now (one that waits, or synchronises by the way); the
 * captures that forbid it are invalid then. */
bool capture_refuses(void);

/* The same of a synchronisation with the context, which every capture in it forbids to every thread. */
bool capture_breaks(const struct context *context);

/* The stream takes part in a capture of another stream. */
CUresult capture_join(struct stream *stream, const struct capture *wanted);

/* The stream ends, and with it its part in a capture. */
void capture_end(struct stream *stream);

/* Adds work that is done at each launch. */
CUresult graph_add_operation(struct graph *graph, const struct operation *operation, struct node **node);

/* The same of a capture, after what was captured before. */
CUresult graph_add_captured(struct graph *graph, const struct operation *operation);

/* Adds a node that does nothing yet; NULL if the process has no memory. */
struct node *graph_add_node(struct graph *graph, int type);

/* driver_enter, and finds the graph; the nodes must be of it. */
CUresult graph_enter(CUgraph handle, const CUgraphNode *dependencies, size_t count, struct graph **graph);

/* A call of the driver's: adds a conditional node with empty bodies, and tells them. */
CUresult graph_add_conditional(CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUDA_CONDITIONAL_NODE_PARAMS *parameters);

/* Makes a graph with one reference; NULL if the process has no memory. */
struct graph *graph_new(void);

/* The program's reference ends, and with it all handles. */
void graph_destroy(struct graph *graph);

/* The node waits for these. */
void graph_depend(struct node *node, struct node *const *before, size_t count);

/* Takes for an executable graph what its kernels need, in the contexts of their modules, and in `context`
 * what its work takes: *size, until graph_work_end(). */
bool graph_work_begin(struct graph *graph, struct context *context, uint64_t *size);
void graph_work_end(struct context *context, uint64_t size);

/* The same for one that does what `graph` does from now on. */
CUresult graph_work_update(struct graph *graph, struct context *context, uint64_t *size);
CUresult graph_work_change(struct node *node, const void *module, struct context *context, uint64_t *size);

/* Takes one reference away, and ends the graph with the last. */
void graph_unreference(struct graph *graph);

/* Adds a node that allocates on the device, or that frees what another node allocates. */
CUresult graph_add_allocation(struct graph *graph, CUdevice device, uint64_t size, struct node **node);
CUresult graph_add_free(struct graph *graph, uint64_t address, struct node **node);

/* Reserves `size` bytes for a launch, from what is cached first. Returns NULL if the device has no room. */
struct graph_hold *graph_hold(CUdevice device, uint64_t size);

/* Gives back what a launch held, unless something in it lives. */
void graph_release(struct graph_hold *hold);

/* Makes the node's allocation live. */
CUresult graph_start(struct node *node, struct graph_hold *hold);

/* Ends a live allocation of a graph; its memory goes back to the cache. */
void graph_free(struct block *block);

/* Ends all live allocations of graphs on the device. */
void graph_end_live(CUdevice device);

/* The last context of the process on the device ends, and with it all memory of graphs there. */
void graph_end_all(CUdevice device);

#endif
