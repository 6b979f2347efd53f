/* What the files of this room share; nobody else includes it. */
#ifndef TT_DIST_INTERNAL_H
#define TT_DIST_INTERNAL_H

#include "dist/dist.h"

#include <pthread.h>

/* Who launches programs with a group's ranks: see together.h. */
typedef struct tt_party {
  int64_t number;
  int64_t *devices; /* NULL: it launches none; ascending */
  int count, peer;
} tt_party;

struct tt_dist_group {
  int64_t id;
  int refs; /* guarded by the lock of group.c, as what follows */
  char *name;
  int rank, size, source;
  int64_t sequence; /* of the next collective; of those that are launched guarded by `launching` */
  tt_status error;  /* that ended it */
  tt_transport transport;
  tt_party party;
  pthread_mutex_t launching; /* held during a launch */
  struct tt_dist_group *next;
};

/* Takes the devices. */
void tt_dist_set_party(tt_dist_group *group, const tt_party *party);
/* The group that launches programs with these, retained; NULL: there is none. */
tt_dist_group *tt_dist_of_party(int64_t party, const int64_t *devices, int count);
void tt_dist_release(tt_dist_group *group);
/* What became of a collective: its error, with all that is known of it, has ended the group. Takes
 * and returns the status. */
tt_status tt_dist_settle(tt_dist_group *group, const tt_collective *c, tt_status status);

/* Its number in the flight record. */
int64_t tt_flight_begin(const char *group, const tt_collective *collective);
void tt_flight_end(int64_t number, bool failed);

#endif
