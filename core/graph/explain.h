/* Why a chunk needed a new program: a sentence that says where it leaves what is known. */
#ifndef TT_GRAPH_EXPLAIN_H
#define TT_GRAPH_EXPLAIN_H

#include "call/explain.h"
#include "graph/cut.h"
#include "graph/trace.h"

/* Where the path to `end` leaves the chunks that are known, or which results are needed that were
 * not before. `sites` are the lines of its operators, `live` is the live set. */
void tt_explain_chunk(const tt_trace_node *end, const uint8_t *live, const uint32_t *sites,
                      tt_cut why, tt_text *text);

#endif
