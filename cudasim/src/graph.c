/* Graphs, the results of captures. A node keeps its dependencies, and what a launch needs to do its
 * work again; exec.c launches. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

void nodes_set(struct nodes *nodes, const struct nodes *from) {
  nodes->count = 0;
  nodes_add(nodes, from);
}

static bool contains(const struct nodes *nodes, CUgraphNode node) {
  for (int i = 0; i < nodes->count; i++)
    if (nodes->at[i] == node) return true;
  return false;
}

void nodes_add(struct nodes *nodes, const struct nodes *more) {
  for (int i = 0; i < more->count; i++) {
    if (contains(nodes, more->at[i])) continue;
    nodes->at = grow(nodes->at, nodes->count, &nodes->room, sizeof *nodes->at);
    nodes->at[nodes->count++] = more->at[i];
  }
}

void nodes_free(struct nodes *nodes) {
  free(nodes->at);
  *nodes = (struct nodes){0};
}

CUresult graph_new(struct capture *capture, struct graph **out) {
  struct graph *g = fresh(sizeof *g);
  CUresult r = object_add(&g->object, GRAPH);
  if (r) {
    free(g);
    return r;
  }
  g->capture = capture;
  ledger_object(&g->object);
  *out = g;
  return CUDA_SUCCESS;
}

void graph_free(struct graph *g) {
  for (int i = 0; i < g->count; i++) {
    object_die(&g->at[i]->object); /* an executable graph may still refer to it */
    object_unref(&g->at[i]->object);
  }
  free(g->at);
  free(g);
}

void node_free(struct node *n) {
  nodes_free(&n->after);
  label_drop(n->label);
  free(n);
}

/* After all that the stream has captured before. */
CUresult graph_add(struct graph *g, int type, const struct work *work, const struct stream *s, CUgraphNode *out) {
  struct node *n = fresh(sizeof *n);
  CUresult r = object_add(&n->object, NODE);
  if (r) {
    free(n);
    return r;
  }
  n->type = type;
  n->work = *work;
  n->context = (CUcontext)s->context->object.handle;
  n->label = label_share(s->label);
  nodes_set(&n->after, &s->ends);
  g->at = grow(g->at, g->count, &g->room, sizeof *g->at);
  g->at[g->count++] = n;
  *out = (CUgraphNode)n->object.handle;
  return CUDA_SUCCESS;
}

static void reach(const struct nodes *nodes) {
  for (int i = 0; i < nodes->count; i++) {
    struct node *n = object_find(nodes->at[i], NODE);
    if (n) n->reached = true;
  }
}

/* A node is listed after all that it depends on, so one pass from the end is enough. */
bool graph_joined(struct graph *g, const struct nodes *ends) {
  for (int i = 0; i < g->count; i++) g->at[i]->reached = false;
  reach(ends);
  for (int i = g->count; i-- > 0;) {
    if (!g->at[i]->reached) return false;
    reach(&g->at[i]->after);
  }
  return true;
}

CUresult graph_create(CUgraph *graph, unsigned flags) {
  struct graph *g;
  if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = graph_new(NULL, &g);
  if (!r) *graph = (CUgraph)g->object.handle;
  return r;
}

/* The manual forbids destroying a graph that a capture still adds to. */
CUresult graph_destroy(CUgraph graph) {
  struct graph *g = object_find(graph, GRAPH);
  if (!g) return CUDA_ERROR_INVALID_VALUE;
  if (g->capture) return CUDA_ERROR_ILLEGAL_STATE;
  object_unref(&g->object);
  return CUDA_SUCCESS;
}

/* Fills the available room; entries beyond the number of nodes become NULL. */
CUresult graph_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  const struct graph *g = object_find(graph, GRAPH);
  if (!g || !count) return CUDA_ERROR_INVALID_VALUE;
  const size_t room = *count, have = (size_t)g->count;
  for (size_t i = 0; nodes && i < room; i++) nodes[i] = i < have ? (CUgraphNode)g->at[i]->object.handle : NULL;
  if (!nodes || room > have) *count = have;
  return CUDA_SUCCESS;
}

CUresult graph_node_type(CUgraphNode node, int *type) {
  const struct node *n = object_find(node, NODE);
  if (!n || !type) return CUDA_ERROR_INVALID_VALUE;
  *type = n->type;
  return CUDA_SUCCESS;
}
