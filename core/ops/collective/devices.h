/* Collectives as StableHLO's, for programs that several devices run at once. */
#ifndef TT_COLLECTIVE_DEVICES_H
#define TT_COLLECTIVE_DEVICES_H

#include "ops/collective/kinds.h"
#include "ops/lower.h"

typedef struct tt_exchange {
  tt_collective_kind kind;
  tt_reduction op; /* not AVG */
  tt_groups groups;
  tt_node *rank, *root; /* of the group, rank 0, of I64 */
} tt_exchange;

/* What the kind makes of x, of rank 1 with elements, on each device: y's elements. All devices give
 * arrays of one size: what a root alone gives or gets, the others give or get for nothing, and
 * messages are broadcasts in groups of two. */
tt_node *tt_exchange_lower(tt_lower *cx, const tt_exchange *exchange, tt_node *x);
/* The number, once all devices have come to where it is computed. */
tt_node *tt_exchange_barrier(tt_lower *cx, const tt_groups *groups, tt_node *number);

#endif
