/* The dist room: groups of processes, and what carries their collectives.
 *
 * A collective is an operator like any other (ops/collective/collective.h): recorded, captured,
 * compiled. Where the plugin does not span processes, its program calls a function of this room,
 * which finds the group by the number in the turn and has the group's transport do it, on a thread
 * that runs the program. */
#ifndef TT_DIST_H
#define TT_DIST_H

#include "ops/collective/collective.h"
#include "stream/stream.h"

/* Lines (base/site.h) are told to programs as numbers from here on: smaller ones would be a part of
 * their text, and a line has another number on each rank. */
enum { TT_FIRST_SITE = 2 };
const char *tt_dist_line(uint32_t site); /* "file.py:12 in f", or "" */

/* One collective, as a transport is to do it. Arrays are packed, row-major, in host memory, and
 * good during the call; NULL where there are no elements. */
typedef struct tt_collective {
  tt_collective_kind kind;
  tt_reduction op; /* not AVG */
  tt_dtype dtype;  /* U8 for what is only moved: elements are bytes then */
  int rank, size;  /* of the group */
  int64_t root;    /* or the peer; of RECV -1: any */
  int64_t tag;
  const void *x; /* NULL where it works in place, on y */
  void *y;
  int64_t x_count, y_count;           /* elements */
  const int64_t *x_splits, *y_splits; /* ALL_TO_ALL: [size] elements; NULL: equal parts */
  int64_t sequence;                   /* in the group, from 0 */
  uint32_t site;                      /* TT_FIRST_SITE + the Python line that asked for it */
  int source;                         /* RECV: set to the rank that sent */
} tt_collective;

/* Table of functions; the user's pointer is theirs. */
typedef struct tt_transport {
  void *user;
  /* Returns when y is there and x is not needed any more. Called by one thread at a time for a
   * group, in the order of the ranks' programs; holding no lock. An error ends the group. */
  tt_status (*run)(void *user, tt_collective *collective);
  /* What `run` would say, as an error, of one that went wrong as `what` tells. NULL is allowed
   * where the group launches no programs (dist/together.h). */
  tt_status (*explain)(void *user, const tt_collective *collective, const char *what);
  /* Once, when nobody is in `run` and the group was destroyed. */
  void (*release)(void *user);
} tt_transport;

/* A sequence of collectives, in one order on all ranks. Thread-safe. */
typedef struct tt_dist_group tt_dist_group;

/* Takes the transport, also on failure. `name` is for messages. */
tt_status tt_dist_create(const char *name, int rank, int size, const tt_transport *transport,
                         tt_dist_group **out);
/* What programs that still name it run into is an error. NULL is allowed. */
void tt_dist_destroy(tt_dist_group *group);
/* Fills the group's first turn. */
void tt_dist_turn(const tt_dist_group *group, int64_t turn[TT_TURN_WORDS]);
/* The error that ended it, or the meetings of its device (stream/meeting.h), a clone; success while
 * it goes on. */
tt_status tt_dist_error(tt_dist_group *group);
/* Whether one has. */
bool tt_dist_failed(tt_dist_group *group);
/* Collectives that have not begun fail with these words; the first ones stay. */
void tt_dist_abort(tt_dist_group *group, const char *why);
/* The rank whose message was received by the group's last RECV; -1 if there was none. */
int tt_dist_source(tt_dist_group *group);

/* The groups of a mesh along the dim whose first group, or another, has these ranks: rows of
 * `size`, `world` in all. False where no mesh of the world has such a dim: equal steps, and groups
 * alike beside it. */
bool tt_dist_partition(const int64_t *ranks, int size, int world, int64_t *out);

/* Does what a program asks of the group that its turn names; the next turn is written. `x` and `y`
 * may be NULL. An error says which group, which collective, and who. */
tt_status tt_dist_run(const int64_t turn[TT_TURN_WORDS], tt_collective *collective,
                      int64_t next[TT_TURN_WORDS]);

/* -- What the arguments of a collective must be; `what` names it. TT_INVALID_ARGUMENT -- */

/* As far as collectives look at a tensor. */
typedef struct tt_dist_tensor {
  int64_t numel;
  tt_dtype dtype;
} tt_dist_tensor;

/* The tensors of the list called `list`: one like `one` for each of `size` ranks. */
tt_status tt_dist_check_parts(const char *what, const char *list, const tt_dist_tensor *parts,
                              int64_t count, tt_dist_tensor one, int size);
/* The tensor called `large` is `size` times the one called `small`. */
tt_status tt_dist_check_whole(const char *what, const char *large, tt_dist_tensor whole,
                              const char *small, tt_dist_tensor part, int size);
/* Elements[size] of each rank's part of `rows`, of `row` elements each, by the `count` numbers of
 * rows that are given; equal parts where none are. */
tt_status tt_dist_split(int64_t rows, int64_t row, const int64_t *given, int64_t count, int size,
                        int64_t *elements);

/* Makes the function known to programs of the CPU platform. UNIMPLEMENTED: the plugin takes none.
 */
tt_status tt_dist_offer(tt_plugin *plugin);

#endif
