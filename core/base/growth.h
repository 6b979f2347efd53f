/* Growth: how much the tables that are emptied as a whole (guard.h) have grown since they were
 * emptied last, and the limits on that (TORCH_TPU_CALL_LIMIT). Thread-safe, under any lock. */
#ifndef TT_GROWTH_H
#define TT_GROWTH_H

#include <stdint.h>

typedef enum tt_growth {
  TT_GROWTH_CALLS,
  TT_GROWTH_NODES, /* of the trees of traces */
  TT_GROWTH_TYPES, /* beyond the first ones; see tt_type_intern */
  TT_GROWTH_BYTES, /* of programs' text */
  TT_GROWTHS
} tt_growth;

/* Reclaiming becomes due when a limit is passed. */
void tt_growth_note(tt_growth what, int64_t amount);
/* The tables are empty again. */
void tt_growth_reset(void);
/* So many types are never forgotten, and cost their storages nothing. */
int64_t tt_growth_spared_types(void);

#endif
