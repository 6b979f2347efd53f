/* A graph whose calls all order kernels of the host's (call/ordered.h): its program is one call,
 * whose operands are the graph's inputs and, if it has any, its words, whose results are its
 * outputs, and which donates nothing. */
#ifndef TT_GRAPH_ORDERED_H
#define TT_GRAPH_ORDERED_H

#include "graph/graph.h"

/* Its orders, as that call's config (ops/order.h). */
tt_status tt_graph_order(const tt_graph *graph, tt_text *out);

#endif
