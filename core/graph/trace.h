/* Traces: an index over graphs. Every sequence of calls that was ever a chunk is a path of a tree,
 * so a chunk that was seen before is recognised as it comes, at the cost of one comparison an
 * operator. A node has the graphs of its path, one for each set of results that was live when a
 * chunk ended there. All functions: under the lock of the device whose streams share the tree. */
#ifndef TT_TRACE_H
#define TT_TRACE_H

#include "graph/ordered.h"

/* One graph of a path. */
typedef struct tt_live_set {
  struct tt_live_set *next;
  uint8_t *live; /* [slot_count] the live set: which slots are outputs */
  tt_graph *graph;
  struct tt_program *program; /* kept here by the room above */
  const tt_orders *orders;    /* of the graph, or NULL until somebody wants them */
} tt_live_set;

typedef struct tt_trace_node {
  struct tt_trace_node *parent, *children, *sibling;
  tt_step step;   /* call NULL: the root */
  int depth;      /* operators up to and with this one */
  int slot_count; /* slots up to and with its results */
  int met;        /* how often a chunk, or a piece of one, was launched that ends here */
  tt_live_set *live_sets;
} tt_trace_node;

typedef struct tt_trace {
  tt_trace_node root; /* no call, no slots */
  tt_arena arena;
  int64_t node_count;
} tt_trace;

void tt_trace_init(tt_trace *trace);
void tt_trace_deinit(tt_trace *trace); /* programs belong to their own table */

/* The node after `at` for this call on these slots; a new one if the path is new. */
tt_status tt_trace_step(tt_trace *trace, tt_trace_node *at, tt_call *call, const int *inputs,
                        int first_output, tt_trace_node **out);

/* The path's entry for this live set, or NULL if there is none. One that returns a few more results
 * than needed is taken, or any such one when the path has been built often enough or with `any`. */
tt_live_set *tt_trace_find(const tt_trace_node *end, const uint8_t *live, bool any);
/* A new entry, which tt_trace_add makes one of the path's once there is a program for it. It may
 * return more than `live`. */
tt_status tt_trace_live_set(tt_trace *trace, tt_trace_node *end, const uint8_t *live,
                            tt_live_set **out);
void tt_trace_add(tt_trace_node *end, tt_live_set *live_set);
/* Makes the orders of an entry whose calls all order. */
tt_status tt_trace_order(tt_trace *trace, tt_live_set *live_set);

#endif
