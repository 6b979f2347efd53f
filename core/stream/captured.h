/* What a capture (capture.h) leaves: a program or several, the storages they work on, and where
 * their scalars come from. */
#ifndef TT_CAPTURED_H
#define TT_CAPTURED_H

#include "stream/divided.h"
#include "stream/stream.h"

/* A storage with the type that the graph expects or leaves. */
typedef struct tt_bound {
  tt_storage *storage; /* one reference */
  tt_type type;
  int value; /* an output: which of the launches' */
} tt_bound;

typedef struct tt_captured {
  tt_device *device;
  tt_divided divided;
  int step_count, input_count, output_count;
  tt_bound *inputs;  /* [input_count] in the graph's order */
  tt_bound *outputs; /* [output_count] */
  tt_graph words;    /* only how its words are filled */
  tt_draw *draws;    /* [draw_count] */
  int draw_count;
  tt_arena arena;
} tt_captured;

/* -- Thread-safe -- */
void tt_captured_destroy(tt_captured *captured); /* NULL is allowed */
/* The generators that it draws from, as tt_draw names them, and how many blocks of each. */
int tt_captured_generators(const tt_captured *captured);
tt_draw tt_captured_draw(const tt_captured *captured, int i);
/* Its operators, inputs and outputs. */
void tt_captured_sizes(const tt_captured *captured, int *steps, int *inputs, int *outputs);
/* How many elements along a dim of an output's type count; the rest is padding. */
typedef struct tt_captured_length {
  int output, dim;
  int64_t length; /* at least 1 */
} tt_captured_length;
/* The storages that a launch works on in the place of those it was captured with: one for each of
 * its inputs, and one for each of its outputs. One that holds a bounded value (call/bounded.h) of
 * the input's type is read with its padding. Outputs that have a length become bounded values. */
typedef struct tt_captured_storages {
  tt_storage *const *inputs, *const *outputs;
  const tt_captured_length *lengths; /* [length_count] */
  int length_count;
} tt_captured_storages;
/* Whether the storage, one of these, holds a bounded value of input i's type. */
bool tt_captured_takes_padding(const tt_captured *captured, int i, const tt_storage *storage);
/* Launches it, or its parts in their order, on a stream of its device; places[i] is where generator
 * i stands; `on` may be NULL. FAILED_PRECONDITION: a tensor has another size or type than when it
 * was captured. */
tt_status tt_captured_replay(tt_captured *captured, tt_stream *stream,
                             const tt_captured_storages *on, const tt_philox_place *places,
                             const tt_policy *policy, uint32_t site);

#endif
