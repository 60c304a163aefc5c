/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs, as the rest of the simulated driver sees them. driver.mutex held, everywhere.
 *
 * An allocation of a graph is live from a launch until it is freed; one that the graph frees itself is live
 * only within a launch, which is over when the call returns. The physical memory is cached per stream, as
 * graphs launched in one stream cannot run at the same time, and stays reserved until cuDeviceGraphMemTrim.
 */
#ifndef SIMULATED_GRAPH_H
#define SIMULATED_GRAPH_H

#include "driver.h"
#include "graph_api.h"
#include "handles.h"

/* What a stream has reserved for graphs, and no live allocation holds. For ever, once made. */
struct graph_cache {
    CUdevice device;
    CUstream stream;
    uint64_t size;
    struct graph_cache *next;
};

struct node {
    struct handle handle;
    int type;            /* CU_GRAPH_NODE_TYPE_* */
    struct graph *graph; /* NULL: destroyed, and here only for its live allocation */
    struct node *next;   /* of the graph, in the order in which they were added */
    uint64_t address;    /* of what it allocates or frees */
    /* Of an allocation: */
    CUdevice device;
    uint64_t size, counted;
    struct block *range;
    struct block *live;               /* NULL, or the one block */
    struct graph_cache *cache;        /* where the live memory came from */
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

/* Makes a graph with one reference; NULL if the process has no memory. */
struct graph *graph_new(void);

/* The program's reference ends, and with it all handles. */
void graph_destroy(struct graph *graph);

/* Takes one reference away, and ends the graph with the last. */
void graph_unreference(struct graph *graph);

/* Adds a node that allocates on the device, or that frees what another node allocates. */
CUresult graph_add_allocation(struct graph *graph, CUdevice device, uint64_t size, struct node **node);
CUresult graph_add_free(struct graph *graph, uint64_t address, struct node **node);

/* The stream's cache on the device, made when it is first asked for. */
struct graph_cache *graph_cache_of(CUdevice device, CUstream stream);

/* Makes the cache at least so large. Returns false if the device has no room. */
bool graph_cache_grow(struct graph_cache *cache, uint64_t size);

/* Makes the node's allocation live, from the cache. */
CUresult graph_start(struct node *node, struct graph_cache *cache);

/* Ends a live allocation of a graph; its memory goes back to the cache. */
void graph_free(struct block *block);

/* Ends all live allocations of graphs on the device. */
void graph_end_live(CUdevice device);

/* The last context of the process on the device ends, and with it all memory of graphs there. */
void graph_end_all(CUdevice device);

#endif
