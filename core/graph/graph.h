/* A graph: some calls over slots. It is what a program is built of, wherever one is: an operator
 * alone, a chunk, a piece of one, what a decomposition did, a captured step.
 *
 * Slots are numbered as values appear: inputs and results alike. Each slot is the result of one
 * step, or an input if a step reads it. Outputs are named; every other result lives in the program
 * alone. The scalars of all steps are packed into one vector of 32-bit words; of each it is known
 * where it comes from.
 *
 * A graph lives in the arena that it was made in, and is immutable once made. It borrows its calls
 * (base/guard.h). Thread-compatible. */
#ifndef TT_GRAPH_H
#define TT_GRAPH_H

#include "call/call.h"

typedef struct tt_step {
  tt_call *call;
  const int *inputs; /* [call->input_count] slots */
  int first_output;  /* its results have consecutive slots from here */
  int word_at;       /* where its scalars begin among the graph's words */
} tt_step;

typedef struct tt_output {
  int slot;
  int over; /* the input whose value it replaces by one of the same type and whose memory it may
               take, or -1 */
} tt_output;

/* Where a run-time scalar comes from. Those that no tt_scalar tells of are inputs in their place.
 */
typedef enum tt_scalar_kind {
  TT_SCALAR_INPUT,    /* words of the caller's */
  TT_SCALAR_CONSTANT, /* as it was when the graph was made */
  TT_SCALAR_PHILOX    /* a seed and an offset: a place in a stream of random numbers */
} tt_scalar_kind;

typedef struct tt_scalar {
  tt_scalar_kind kind;
  int at, count;         /* its words among the graph's */
  int input;             /* INPUT: its first word among the caller's */
  uint32_t words[2];     /* CONSTANT */
  int stream;            /* PHILOX: which stream, and how many blocks */
  int64_t block, blocks; /* behind its present place, and how many it draws */
} tt_scalar;

typedef struct tt_graph {
  int step_count, slot_count, input_count, output_count, word_count, scalar_count;
  const tt_step *steps;
  const int *inputs;                 /* [input_count] slots, ascending */
  const tt_type *const *input_types; /* [input_count] interned */
  const tt_output *outputs;          /* [output_count] by ascending slots */
  const tt_scalar *scalars;          /* [scalar_count] */
  const char *options;               /* how its program is compiled: the text's first lines
                                        (pjrt/pjrt.h), or NULL; set by whoever made the graph */
} tt_graph;

/* The graph of these steps (borrowed: they live as long as the arena) over `slot_count` slots,
 * whose outputs are the results with live[slot] set. All scalars are inputs. INVALID_ARGUMENT, OOM.
 */
tt_status tt_graph_create(tt_arena *arena, const tt_step *steps, int step_count, int slot_count,
                          const uint8_t *live, tt_graph **out);
/* The graph of one call, all of whose results are outputs. */
tt_status tt_graph_of_call(tt_arena *arena, tt_call *call, tt_graph **out);
/* The last step that reads each slot, or -1, from the last step to the first, leaving out steps
 * that no output needs; `needed[i]` tells which steps those are not. */
void tt_graph_uses(const tt_graph *graph, int *last_use, bool *needed);
/* Do they compute the same? Their slots are numbered as values appear, so that is told from them.
 */
bool tt_graph_equal(const tt_graph *a, const tt_graph *b);
/* The type of a result. */
const tt_type *tt_step_result_type(const tt_step *step, int output);

/* A stream of random numbers where it stands now. */
typedef struct tt_philox_place {
  uint64_t seed, offset; /* in blocks */
} tt_philox_place;
/* Fills words[word_count]; `inputs` are the caller's words, `streams` where its streams stand. */
void tt_graph_fill_words(const tt_graph *graph, const uint32_t *inputs,
                         const tt_philox_place *streams, uint32_t *words);

#endif
