/* Collectives as operators: one row, whose arguments say what the ranks of a group do together.
 *
 *   collective_(turn!, inputs, outputs!, kind, op, root, tag, site, splits, devices, ranks, party)
 *
 * `turn` is a tensor that each collective of a group reads and writes, so that these happen in the
 * order in which they were recorded, in one program or in several, and none is left out. It says
 * which group it is, too: no program's text has anything in it that differs from rank to rank.
 *
 * Where the plugin's own collectives are to do it, `devices` says between which: the numbers of the
 * ranks' devices, in groups of `ranks`, and the program runs on all of them at once
 * (collective/devices.h). Empty: a transport of ours does it. `party` is the number that these
 * ranks have for their launches of it, lest those of another group with the same devices meet them.
 *
 * The tensors of a list are of one dtype, and are packed one behind the other: x for `inputs` (of
 * those that work in place, for `outputs`), y for `outputs`. */
#ifndef TT_COLLECTIVE_H
#define TT_COLLECTIVE_H

#include "ops/collective/kinds.h"

/* Its arguments, in their order. */
enum {
  TT_COLLECTIVE_ARG_TURN,
  TT_COLLECTIVE_ARG_INPUTS,
  TT_COLLECTIVE_ARG_OUTPUTS,
  TT_COLLECTIVE_ARG_KIND,
  TT_COLLECTIVE_ARG_OP,
  TT_COLLECTIVE_ARG_ROOT,
  TT_COLLECTIVE_ARG_TAG,
  TT_COLLECTIVE_ARG_SITE,
  TT_COLLECTIVE_ARG_SPLITS,
  TT_COLLECTIVE_ARG_DEVICES,
  TT_COLLECTIVE_ARG_RANKS,
  TT_COLLECTIVE_ARG_PARTY
};

/* What a turn holds: I64s. */
enum { TT_TURN_GROUP, TT_TURN_SEQUENCE, TT_TURN_SIZE, TT_TURN_RANK, TT_TURN_WORDS };

/* The function that programs call where the plugin leaves collectives to us: operands are the turn,
 * [root, tag, line, splits of x and y if they differ], and x; results the next turn, and y; x and y
 * only if there are such elements. Flags: `kind`, `op`. */
#define TT_COLLECTIVE_TARGET "torch_tpu.collective"

#endif
