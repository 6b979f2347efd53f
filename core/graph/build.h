/* The builder of program text: the one place where a graph becomes StableHLO. */
#ifndef TT_BUILD_H
#define TT_BUILD_H

#include "graph/joint.h"

/* A program's text, and what those who launch it must know. Parameters are the graph's inputs, then
 * its words, if there are any; results are its outputs, then one flag for each Debug check. */
typedef struct tt_module {
  tt_text text;
  char *name;                    /* for messages */
  int result_count;              /* without check flags */
  int64_t result_bytes, largest; /* of all results; elements of the largest value on the way */
  bool *reads;                   /* of each input whether anything depends on its value */
  tt_joint joint;                /* what it has several devices do */
  int donor_count;               /* parameters that may be donated, ascending */
  int64_t *donors;
  int check_count; /* rank-0 bool results behind the others; true means violated */
  char **check_texts;
  tt_code *check_codes;
} tt_module;

/* *out is the caller's to deinit, also on failure. Thread-safe. UNIMPLEMENTED: a lowering cannot do
 * it for this target. */
tt_status tt_graph_build(const tt_graph *graph, const tt_target *target, tt_module *out);
void tt_module_deinit(tt_module *module);

#endif
