/* Launches of programs that devices of several processes run at once (StableHLO's collectives on a
 * plugin that spans processes). Nothing is launched before all of a group's processes have come
 * with the same program, so that none waits on its device for one that never comes; and what is
 * launched is so in one order on all of them (dist/tickets.h). */
#ifndef TT_LAUNCH_TOGETHER_H
#define TT_LAUNCH_TOGETHER_H

#include "dist/dist.h"

/* What a group's launches are, by the order of collectives that they are of. A program names it:
 * its party is TT_PARTY_KINDS times the group's number, which all of its ranks have for it, and the
 * kind.
 */
typedef enum tt_party_kind {
  TT_PARTY_ALL,      /* of all ranks, each a collective */
  TT_PARTY_CAPTURED, /* of all of the world, with what was captured or compiled around */
  TT_PARTY_UP,       /* messages to the device with the larger number */
  TT_PARTY_DOWN,     /* and to the one with the smaller */
  TT_PARTY_KINDS
} tt_party_kind;

/* Has the group's transport agree on launches of programs with this party, by these devices (in any
 * order), among which `peer` is the rank at the message's other end; -1: all of its ranks are. The
 * group is told of errors. Copied; until the group is destroyed. */
tt_status tt_dist_enlist(tt_dist_group *group, int64_t party, const int64_t *devices, int count,
                         int peer);

/* Has `run` launch the program, which the Python line `site` asked for, when it is this process's
 * turn. UNAVAILABLE: who did not come, or comes with another program; FAILED_PRECONDITION: no group
 * has this party. */
tt_status tt_dist_launch(const tt_program *program, uint32_t site, tt_status (*run)(void *user),
                         void *user);

#endif
