/* SPDX-License-Identifier: Apache-2.0
 *
 * What an executable graph takes for its work, as on an H200 with driver 580.159: so much for each node that
 * does something, and more for each chain of nodes that run one after the other. A node runs in the chain of
 * one that it waits for, if nobody else does yet. It comes with the instantiation, in steps, and is kept for
 * other graphs until the context ends. An update to kernels of larger parameters takes twice the difference.
 */
#include "libcuda/graph/graph.h"
#include "libcuda/module/module.h"

#define NODE_SIZE  UINT64_C(2720)
#define SMALL      1000 /* bytes of parameters */
#define MIDDLE     4096
#define LARGE_SIZE (UINT64_C(31) << 10)
#define CHAIN_SIZE (UINT64_C(112) << 10)

static bool continues(const struct node *node) {
    for (size_t index = 0; index < node->before_count; index++) {
        if (node->before[index]->continued) continue;
        node->before[index]->continued = true;
        return true;
    }
    return false;
}

/* For the parameters of a kernel. */
static uint64_t room_of(const struct module *module) {
    uint64_t size = module == NULL ? 0 : module->parameters;
    return size <= SMALL ? 0 : size <= MIDDLE ? size * 3 / 2 : LARGE_SIZE;
}

static uint64_t size_of(const struct graph *graph) {
    uint64_t size = 0;
    for (struct node *node = graph->nodes; node != NULL; node = node->next) node->continued = false;
    for (const struct node *node = graph->nodes; node != NULL; node = node->next) {
        bool works = node->operation.kind != OPERATION_NOTHING || node->body_count > 0;
        if (!continues(node) && works) size += CHAIN_SIZE;
        if (works) size += NODE_SIZE;
        if (node->child != NULL) size += size_of(node->child);
        for (unsigned index = 0; index < node->body_count; index++) size += size_of(node->bodies[index]);
        size += room_of(node->operation.module);
    }
    return size;
}

bool graph_work_begin(struct graph *graph, struct context *context, uint64_t *size) {
    for (const struct node *node = graph->nodes; node != NULL; node = node->next) {
        if (node->operation.module != NULL && !module_grow(node->operation.module)) return false;
    }
    *size = size_of(graph);
    return store_take(context, &context->graphs, *size);
}

void graph_work_end(struct context *context, uint64_t size) {
    if (context->alive) store_give(&context->graphs, size);
}

CUresult graph_work_update(struct graph *graph, struct context *context, uint64_t *size) {
    uint64_t after = size_of(graph), more = after > *size ? 2 * (after - *size) : 0;
    if (!store_take(context, &context->graphs, more)) return CUDA_ERROR_OUT_OF_MEMORY;
    *size += more;
    return CUDA_SUCCESS;
}

CUresult graph_work_change(struct node *node, const void *module, struct context *context, uint64_t *size) {
    uint64_t after = room_of(module), more = after > node->room ? 2 * (after - node->room) : 0;
    if (!store_take(context, &context->graphs, more)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (after > node->room) node->room = after;
    *size += more;
    return CUDA_SUCCESS;
}
