/* A graph whose calls all order kernels of the host's (call/ordered.h), so that it needs no
 * program: operands are its inputs, results its outputs, each a storage of its own. */
#ifndef TT_GRAPH_ORDERED_H
#define TT_GRAPH_ORDERED_H

#include "graph/graph.h"
#include "ops/order.h"

/* Its orders. They live as long as the arena and the graph. */
tt_status tt_graph_order(const tt_graph *graph, tt_arena *arena, tt_orders *out);

#endif
