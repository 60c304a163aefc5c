/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph could allocate is the union of its nodes' address ranges: the driver gives allocations that
 * are not alive at the same time the same addresses. On an H200 (driver 580.159) the reservation grows in
 * steps of 32 MiB.
 *
 * What its work takes (the same driver, 58 graphs of 20 shapes): 2.7 KiB for each node, and for large
 * parameters up to 1.6 times their size; and 112 KiB for each chain, of nodes that run one after the other.
 * The driver finds longer chains than we do: here a node that waits for several begins one. Empty nodes take
 * nothing.
 */
#include "graphs/contents.h"

#include "accounting/charge.h"
#include "accounting/device.h"
#include "functions/functions.h"
#include "functions/parameters.h"
#include "graphs/bodies.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { GROWTH = 32 << 20, DEPTH = 16, NODE = 2816, CHAIN = 115 << 10 };
enum { MIDDLE_PARAMETERS = 4096, LARGE_PARAMETERS = 40 << 10 };
enum { NODE_EMPTY = 5, NODE_ALLOC = 10, NODE_FREE = 11 };

/* Addresses that a node gives to the program. */
struct range {
    uint64_t first, end;
    int device;
};

struct reading {
    struct graph_contents *contents;
    struct range *rows;
    size_t room; /* of `rows` */
    uint64_t *frees;
    size_t frees_room, frees_count;
    size_t empty;
    bool works;   /* its work is of interest */
    bool wide;    /* there are kernels of large parameters */
    bool refused; /* no memory for a list, a device without a limit here, or it is too deep */
};

/* mmap and not malloc: see allocations.h. NULL: no memory. */
static void *make_list(size_t bytes) {
    void *list = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return list == MAP_FAILED ? NULL : list;
}

/* Returns a list with room for one entry more than `count`, or NULL: then it is as it was. */
static void *make_room(void *list, size_t *room, size_t count, size_t row) {
    if (count < *room) return list;
    size_t more = *room ? *room * 2 : 128;
    void *grown = list ? mremap(list, *room * row, more * row, MREMAP_MAYMOVE) : make_list(more * row);
    if (!grown || grown == MAP_FAILED) return NULL;
    *room = more;
    return grown;
}

static void add_allocation(struct reading *reading, CUgraphNode node) {
    struct allocation_node parameters;
    if (DRIVER(cuGraphMemAllocNodeGetParams, node, &parameters) != CUDA_SUCCESS) return;
    const struct memory_location *location = &parameters.pool.location;
    if (location->type != LOCATION_DEVICE) return;
    int device = device_of_ordinal(location->ordinal);
    if (device < 0) device_refuse(location->ordinal);
    struct range *rows =
        make_room(reading->rows, &reading->room, reading->contents->allocations, sizeof *reading->rows);
    if (rows) reading->rows = rows;
    if (device < 0 || !rows) {
        reading->refused = true;
        return;
    }
    reading->contents->ordinal[device] = location->ordinal;
    uint64_t size = charge_round(parameters.size), end;
    if (__builtin_add_overflow(parameters.address, size, &end)) end = UINT64_MAX;
    reading->rows[reading->contents->allocations++] = (struct range){parameters.address, end, device};
}

/* Without memory for it, what it frees counts as kept. */
static void add_free(struct reading *reading, CUgraphNode node) {
    CUdeviceptr address;
    if (!driver.cuGraphMemFreeNodeGetParams ||
        DRIVER(cuGraphMemFreeNodeGetParams, node, &address) != CUDA_SUCCESS)
        return;
    uint64_t *frees =
        make_room(reading->frees, &reading->frees_room, reading->frees_count, sizeof *reading->frees);
    if (!frees) return;
    reading->frees = frees;
    frees[reading->frees_count++] = address;
}

/* Bytes for the parameters of a kernel: the most that is seen for those of up to 32 kB. */
static uint64_t room_for_parameters(CUgraphNode node) {
    struct kernel_node kernel = {0};
    if (DRIVER(cuGraphKernelNodeGetParams_v2, node, &kernel) != CUDA_SUCCESS) return 0;
    void *handle = kernel.function ? kernel.function : kernel.kernel;
    bool library = !kernel.function || functions_library((word)(uintptr_t)handle) != 0;
    uint64_t size = parameters_of((word)(uintptr_t)handle, library);
    if (size <= GRAPH_SMALL_PARAMETERS) return 0;
    return size <= MIDDLE_PARAMETERS ? 2 * size : LARGE_PARAMETERS;
}

static int compare_nodes(const void *one, const void *other) {
    uintptr_t left = (uintptr_t)*(const CUgraphNode *)one, right = (uintptr_t)*(const CUgraphNode *)other;
    return left < right ? -1 : left > right;
}

static int compare_edges(const void *one, const void *other) {
    return compare_nodes((const CUgraphNode *)one + 1, (const CUgraphNode *)other + 1);
}

/* Nodes that are the first of those that wait for one other only: they run in its chain. `edges` are `count`
 * pairs, from a node to one that waits for it. */
static size_t count_continuing(CUgraphNode (*edges)[2], size_t count) {
    CUgraphNode *from = &edges[0][0];
    size_t single = 0, different = 0;
    qsort(edges, count, sizeof *edges, compare_edges);
    for (size_t index = 0; index < count; index++) {
        bool before = index > 0 && edges[index - 1][1] == edges[index][1];
        bool after = index + 1 < count && edges[index + 1][1] == edges[index][1];
        if (!before && !after) edges[single++][0] = edges[index][0];
    }
    for (size_t index = 0; index < single; index++) from[index] = edges[index][0];
    qsort(from, single, sizeof *from, compare_nodes);
    for (size_t index = 0; index < single; index++) different += index == 0 || from[index] != from[index - 1];
    return different;
}

/* The newer call gives what edges carry, without which it fails if there is something. */
static CUresult read_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, void *data, size_t *count) {
    return driver.cuGraphGetEdges_v2 ? DRIVER(cuGraphGetEdges_v2, graph, from, to, data, count)
                                     : DRIVER(cuGraphGetEdges, graph, from, to, count);
}

/* Nodes that begin no chain; 0 if nobody can tell. */
static size_t read_continuing(CUgraph graph) {
    size_t count = 0, continuing = 0;
    CUresult result = read_edges(graph, NULL, NULL, NULL, &count);
    if (result != CUDA_SUCCESS || count == 0) return 0;
    size_t bytes = count * 5 * sizeof(CUgraphNode);
    CUgraphNode *lists = make_list(bytes); /* from, to, data of eight bytes, and pairs */
    if (!lists) return 0;
    CUgraphNode *to = lists + count;
    CUgraphNode(*edges)[2] = (CUgraphNode(*)[2])(lists + 3 * count);
    if (read_edges(graph, lists, to, to + count, &count) == CUDA_SUCCESS) {
        for (size_t index = 0; index < count; index++) {
            edges[index][0] = lists[index];
            edges[index][1] = to[index];
        }
        continuing = count_continuing(edges, count);
    }
    munmap(lists, bytes);
    return continuing;
}

/* Of a graph of `count` nodes, of which reading->empty do nothing and take nothing. Each of these may stand
 * at both ends of what was taken for a chain. */
static void add_work(struct reading *reading, CUgraph graph, size_t count) {
    size_t working = count - reading->empty, continuing = working > 0 ? read_continuing(graph) : 0;
    continuing = continuing > 2 * reading->empty ? continuing - 2 * reading->empty : 0;
    size_t chains = working > continuing ? working - continuing : working > 0;
    reading->contents->work += working * NODE + chains * CHAIN;
}

static void add_graph(struct reading *reading, CUgraph graph, int depth);

/* All of them, although one at most runs at a time. */
static void add_bodies(struct reading *reading, CUgraphNode node, int depth) {
    size_t count;
    const CUgraph *bodies = bodies_find(node, &count);
    for (size_t index = 0; index < count; index++) add_graph(reading, bodies[index], depth);
}

static void add_node(struct reading *reading, CUgraphNode node, int depth) {
    int type = -1;
    CUgraph child;
    if (DRIVER(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) return;
    if (type == NODE_KERNEL && reading->wide) reading->contents->parameters += room_for_parameters(node);
    if (type == NODE_EMPTY) reading->empty++;
    if (type == NODE_ALLOC) add_allocation(reading, node);
    if (type == NODE_FREE) add_free(reading, node);
    if (type == NODE_CONDITIONAL) add_bodies(reading, node, depth + 1);
    if (type == NODE_CHILD && DRIVER(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS)
        add_graph(reading, child, depth + 1);
}

/* Enters what the graph and its children take. Those that lie deeper in each other than any program makes
 * them are refused, as nobody knows what they take. */
static void add_graph(struct reading *reading, CUgraph graph, int depth) {
    size_t count = 0;
    if (DRIVER(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS || count == 0) return;
    size_t bytes = count * sizeof(CUgraphNode);
    CUgraphNode *nodes = make_list(bytes);
    if (!nodes || depth > DEPTH) {
        reading->refused = true;
        if (nodes) munmap(nodes, bytes);
        return;
    }
    if (DRIVER(cuGraphGetNodes, graph, nodes, &count) != CUDA_SUCCESS) count = 0;
    size_t outside = reading->empty;
    reading->empty = 0;
    for (size_t index = 0; index < count; index++) add_node(reading, nodes[index], depth);
    if (reading->works) add_work(reading, graph, count);
    reading->empty = outside;
    munmap(nodes, bytes);
}

static int compare_addresses(const void *one, const void *other) {
    uint64_t left = *(const uint64_t *)one, right = *(const uint64_t *)other;
    return left < right ? -1 : left > right;
}

/* What outlives the executable graph, if nobody else frees it: of allocations that have one address, as they
 * follow each other, the last may be freed by no node. The rows are in the order of add_bounds(). */
static void find_kept(struct reading *reading) {
    size_t row = sizeof *reading->frees, free = 0;
    if (reading->frees_count > 0) qsort(reading->frees, reading->frees_count, row, compare_addresses);
    for (size_t index = 0; index < reading->contents->allocations; index++) {
        const struct range *kept = &reading->rows[index];
        if (index > 0 && kept->device != reading->rows[index - 1].device) free = 0;
        while (free < reading->frees_count && reading->frees[free] < kept->first) free++;
        bool freed = free < reading->frees_count && reading->frees[free] == kept->first;
        if (freed) free++; /* each frees one */
        reading->contents->keeps[kept->device] |= !freed;
    }
}

static int compare(const void *one, const void *other) {
    const struct range *left = one, *right = other;
    if (left->device != right->device) return left->device < right->device ? -1 : 1;
    return left->first < right->first ? -1 : left->first > right->first;
}

/* The bytes of the ranges' union on each device, in the driver's steps. */
static void add_bounds(const struct reading *reading) {
    uint64_t end = 0, *bound = reading->contents->bound;
    size_t count = reading->contents->allocations;
    if (count > 0) qsort(reading->rows, count, sizeof *reading->rows, compare);
    for (size_t index = 0; index < count; index++) {
        const struct range *row = &reading->rows[index];
        if (index == 0 || reading->rows[index - 1].device != row->device) end = 0;
        uint64_t first = row->first > end ? row->first : end;
        if (row->end > first) bound[row->device] += row->end - first;
        if (row->end > end) end = row->end;
    }
    for (uint32_t device = 0; device < CONVGPU_MAX_DEVICES; device++)
        bound[device] = bound[device] > UINT64_MAX - GROWTH ? bound[device]
                                                            : (bound[device] + GROWTH - 1) / GROWTH * GROWTH;
}

static CUresult read_graph(CUgraph graph, struct graph_contents *contents, bool works) {
    bool wide = works && parameters_most() > GRAPH_SMALL_PARAMETERS;
    struct reading reading = {.contents = contents, .works = works, .wide = wide};
    *contents = (struct graph_contents){0};
    add_graph(&reading, graph, 0);
    contents->work += contents->parameters;
    add_bounds(&reading);
    find_kept(&reading);
    if (reading.rows) munmap(reading.rows, reading.room * sizeof *reading.rows);
    if (reading.frees) munmap(reading.frees, reading.frees_room * sizeof *reading.frees);
    return reading.refused ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult graph_read(CUgraph graph, struct graph_contents *contents) {
    return read_graph(graph, contents, true);
}

CUresult graph_read_bounds(CUgraph graph, struct graph_contents *contents) {
    return read_graph(graph, contents, false);
}
