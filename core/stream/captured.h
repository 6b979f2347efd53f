/* What a capture (capture.h) leaves: a program, the storages it works on, and where its scalars
 * come from. */
#ifndef TT_CAPTURED_H
#define TT_CAPTURED_H

#include "stream/stream.h"

/* A storage with the type that the program expects or leaves. */
typedef struct tt_bound {
  tt_storage *storage; /* one reference */
  tt_type type;
  int output; /* an output: which of the program's */
} tt_bound;

typedef struct tt_captured {
  tt_device *device;
  tt_program *program; /* kept in memory as long as this lives */
  int step_count, input_count, output_count, bound_output_count;
  tt_bound *inputs;             /* [input_count] in the program's order */
  tt_bound *outputs;            /* [bound_output_count] */
  const tt_type **output_types; /* [output_count] scratch of one replay, under the device's lock */
  tt_graph words;               /* only how its words are filled */
  tt_draw *draws;               /* [draw_count] */
  int draw_count;
  bool known; /* the process had the program already */
  tt_arena arena;
} tt_captured;

/* -- Thread-safe -- */
void tt_captured_destroy(tt_captured *captured); /* NULL is allowed */
/* The generators that it draws from, as tt_draw names them, and how many blocks of each. */
int tt_captured_generators(const tt_captured *captured);
tt_draw tt_captured_draw(const tt_captured *captured, int i);
/* Its operators, inputs and outputs. */
void tt_captured_sizes(const tt_captured *captured, int *steps, int *inputs, int *outputs);
/* The storages that a launch works on in the place of those it was captured with: one for each of
 * its inputs, and one for each of its bound outputs. */
typedef struct tt_captured_storages {
  tt_storage *const *inputs, *const *outputs;
} tt_captured_storages;
/* Launches it on a stream of its device; places[i] is where generator i stands; `on` may be NULL.
 * FAILED_PRECONDITION: a tensor has another size or type than when it was captured. */
tt_status tt_captured_replay(tt_captured *captured, tt_stream *stream,
                             const tt_captured_storages *on, const tt_philox_place *places,
                             const tt_policy *policy, uint32_t site);

#endif
