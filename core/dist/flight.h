/* The flight record: the process's last collectives, and what became of them. Thread-safe. */
#ifndef TT_FLIGHT_H
#define TT_FLIGHT_H

#include "dist/dist.h"

enum { TT_FLIGHT_KEPT = 2000 };

typedef enum tt_flight_state {
  TT_FLIGHT_STARTED,
  TT_FLIGHT_COMPLETED,
  TT_FLIGHT_FAILED
} tt_flight_state;

typedef struct tt_flight {
  char group[64]; /* its name, cut where it is longer */
  tt_flight_state state;
  tt_collective_kind kind;
  tt_reduction op;
  tt_dtype dtype; /* U8 for what is only moved */
  int rank, size;
  int64_t root, sequence, x_count, y_count;
  int64_t started_ns, ended_ns; /* since 1970; 0: not yet */
  uint32_t site;                /* as of tt_collective */
} tt_flight;

/* Collectives ever begun, which are numbered from 0. */
int64_t tt_flight_count(void);
/* False: number `number` is not kept any more, or not yet. */
bool tt_flight_get(int64_t number, tt_flight *out);

#endif
