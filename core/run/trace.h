/* Traces: every sequence of calls that was ever a chunk, as a tree, with the programs compiled for
 * them. Recording walks down the tree by comparing interned calls, so a chunk that was seen before
 * is recognised as it comes and costs one comparison an operator.
 *
 * Values have slots, numbered as they appear: a chunk's inputs and results alike. So the same
 * operators on other tensors take the same path. All functions: under the stream's record lock. */
#ifndef TT_TRACE_H
#define TT_TRACE_H

#include "run/call.h"
#include "run/program.h"

/* One program for a trace: the results that somebody still held when the chunk ended. */
typedef struct tt_variant {
  struct tt_variant *next;
  uint8_t *live; /* [slot_count] */
  tt_program *program;
} tt_variant;

typedef struct tt_step {
  struct tt_step *parent, *children, *sibling;
  tt_call *call;
  int *inputs;      /* [call->input_count] slots */
  int depth;        /* operators up to and with this one */
  int slot_count;   /* slots up to and with its results */
  int first_output; /* its results have consecutive slots from here */
  int word_at;      /* where its numbers begin among the chunk's */
  int met;          /* how often a chunk, or a piece of one, was launched that ends here */
  tt_variant *variants;
} tt_step;

typedef struct tt_trace {
  tt_step root; /* no call, no slots */
  tt_arena arena;
  int64_t step_count;
} tt_trace;

void tt_trace_init(tt_trace *trace);
void tt_trace_deinit(tt_trace *trace); /* programs belong to their own table */

/* The step after `at` for this call on these slots; a new one if the path is new. */
tt_status tt_trace_step(tt_trace *trace, tt_step *at, tt_call *call, const int *inputs,
                        int first_output, tt_step **out);

/* The program for the path to `end`, or NULL if there is none. `live` tells for each slot whether
 * it is a result that is needed. A program that returns a few more results than needed
 * is taken, or any such program when the path has been compiled often enough or with `any`; `live`
 * then becomes that program's. */
tt_program *tt_trace_find(const tt_step *end, uint8_t *live, bool any);
/* Asks for a program for the path; `is_input` tells which slots are inputs; `later` as in
 * tt_program_intern_later. `live` may be widened.
 * *fresh: its text is new to the process. */
tt_status tt_trace_program(tt_trace *trace, tt_step *end, uint8_t *live, const uint8_t *is_input,
                           bool later, tt_program **out, bool *fresh);

#endif
