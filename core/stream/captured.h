/* What a capture leaves: a program, the storages it works on, and where its scalars come from. */
#ifndef TT_CAPTURED_H
#define TT_CAPTURED_H

#include "stream/capture.h"

/* A storage with the type that the program expects or leaves. */
typedef struct tt_bound {
  tt_storage *storage; /* one reference */
  tt_type type;
  int output; /* an output: which of the program's */
} tt_bound;

struct tt_captured {
  tt_device *device;
  tt_program *program; /* kept in memory as long as this lives */
  int step_count, input_count, output_count, bound_output_count;
  tt_bound *inputs;             /* [input_count] in the program's order */
  tt_bound *outputs;            /* [bound_output_count] */
  const tt_type **output_types; /* [output_count] scratch of one replay, under the device's lock */
  tt_graph words;               /* only how its words are filled */
  tt_draw *draws;               /* [draw_count] */
  int draw_count;
  char *name;
  tt_arena arena;
};

#endif
