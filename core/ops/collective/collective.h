/* Collectives as operators: one row, whose arguments say what the ranks of a group do together.
 *
 *   collective_(turn!, inputs, outputs!, kind, op, root, tag, site, splits, devices, ranks)
 *
 * `turn` is a tensor that each collective of a group reads and writes, so that these happen in the
 * order in which they were recorded, in one program or in several, and none is left out. It says
 * which group it is, too: no program's text has anything in it that differs from rank to rank.
 *
 * Where the plugin's own collectives are to do it, `devices` says between which: the numbers of the
 * ranks' devices, in groups of `ranks`, and the program runs on all of them at once
 * (collective/devices.h). Empty: a transport of ours does it.
 *
 * The tensors of a list are of one dtype, and are packed one behind the other: x for `inputs` (of
 * those that work in place, for `outputs`), y for `outputs`. */
#ifndef TT_COLLECTIVE_H
#define TT_COLLECTIVE_H

#include "ops/collective/kinds.h"

/* What a turn holds: I64s. */
enum { TT_TURN_GROUP, TT_TURN_SEQUENCE, TT_TURN_SIZE, TT_TURN_RANK, TT_TURN_WORDS };

/* The function that programs call where the plugin leaves collectives to us: operands are the turn,
 * [root, tag, line, splits of x and y if they differ], and x; results the next turn, and y; x and y
 * only if there are such elements. Flags: `kind`, `op`. */
#define TT_COLLECTIVE_TARGET "torch_tpu.collective"

#endif
