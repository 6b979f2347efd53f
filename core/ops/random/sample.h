/* Distributions without a formula: elements try until they accept. */
#ifndef TT_SAMPLE_H
#define TT_SAMPLE_H

#include "ops/random/philox.h"

typedef struct tt_sampler tt_sampler;
/* One try of all elements: a value and whether it is accepted, from a block of words each. */
typedef void (*tt_attempt)(const tt_sampler *s, tt_node *const *words, tt_node **value,
                           tt_node **accepted);

struct tt_sampler {
  tt_lower *cx;
  int64_t count;
  tt_dtype dtype;
  int64_t first_draw; /* number of the draw that the first round is */
  tt_attempt attempt;
  tt_node *operands[3]; /* rank 1, `count` elements */
};

/* Tries until all elements accept; those that are `done` (bool) keep their `start`. */
tt_node *tt_sample(tt_sampler *s, tt_node *done, tt_node *start);
/* A rank-0 constant of the sampler's dtype. */
tt_node *tt_sampler_num(const tt_sampler *s, double value);
/* A tensor or number argument as in tt_spread, flattened. */
tt_node *tt_flat_operand(tt_lower *cx, int arg, tt_dtype dtype, const tt_type *type);

#endif
