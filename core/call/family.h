/* Families: calls that are equal but for their places (call/places.h). The first one is as it is;
 * once a second one is seen, the places in which they differ are run-time numbers of one general
 * call, which serves all later ones whose views can be found in the same way, and whose sizes have
 * the same bounds (call/bounds.h); those that have other distances between what is read and what is
 * written after they were looked at as if they were new, since PyTorch may object to them. */
#ifndef TT_CALL_FAMILY_H
#define TT_CALL_FAMILY_H

#include "call/bounds.h"

/* Thread-compatible. Calls and families are borrowed within a guard (base/guard.h). */
typedef struct tt_families {
  tt_intern by_key;
} tt_families;

struct tt_family;

/* A general call that is wanted. */
typedef struct tt_general {
  struct tt_family *family;
  uint32_t moved; /* bit i: place i is a run-time number */
  uint32_t flat;  /* bit i: it is an offset whose motion is TT_MOTION_FLAT */
  uint64_t written, distances;
  tt_bounds bounds; /* of places that are sizes */
  tt_places places; /* those of the member that wants it */
  tt_key key;
  tt_call_spec spec; /* the member's, with scalars for places */
  tt_arena arena;
} tt_general;

/* The general call for a member, whose arguments begin in the key at `first`; NULL: there is none
 * yet. *places: what it is to be handed. */
tt_call *tt_families_find(const tt_families *all, const tt_op_row *row, const tt_key *key,
                          size_t first, tt_places *places);
/* What general call the member that the spec describes should have; false where it has to be as it
 * is. Then *out is not to be deinitialised. */
bool tt_families_want(const tt_families *all, const tt_key *key, size_t first,
                      const tt_call_spec *spec, tt_general *out);
void tt_general_deinit(tt_general *general);
/* It was made; `call` NULL: it cannot be, and the family's members stay as they are. */
void tt_families_keep(const tt_general *general, tt_call *call);
/* The first of a family, if the key has places. Where memory is out it is forgotten. */
void tt_families_add(tt_families *all, const tt_key *key, size_t first, const tt_call_spec *spec);
void tt_families_clear(tt_families *all);

#endif
