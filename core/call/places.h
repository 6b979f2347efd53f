/* Places: words of a key that say where in a tensor a call begins, an offset of a view, an index, a
 * start, or how far it goes, a size that a row may be told at run time (tt_op_length). Where calls
 * differ in nothing else, these become run-time numbers (call/family.h). */
#ifndef TT_CALL_PLACES_H
#define TT_CALL_PLACES_H

#include "call/args.h"

enum { TT_MOST_PLACES = 32 }; /* a key with more of them has none */

/* What a call is handed, behind its own numbers, for those that are run-time numbers. */
typedef struct tt_places {
  int count;
  int64_t values[TT_MOST_PLACES];
} tt_places;

typedef enum tt_place_kind { TT_PLACE_ARG, TT_PLACE_OFFSET, TT_PLACE_SIZE } tt_place_kind;

typedef struct tt_place {
  tt_place_kind kind;
  size_t at;   /* its word in the key */
  size_t end;  /* where the end is that moves with a start, or a size; 0: none */
  size_t view; /* of the others, where the view's offset is */
  int tensor, dim;
  int same; /* the place before it of which it is a copy, or -1 */
} tt_place;

/* A key as a member of a family: of all that are equal but for their places. */
typedef struct tt_member {
  int count;
  tt_place places[TT_MOST_PLACES];
  uint64_t written;   /* bit i: the storage of tensor i was; which a family does not ask, either */
  uint64_t distances; /* a hash of those between views of a storage that the call writes: on them
                         hangs whether what is written overlaps what is read */
  tt_key family;
} tt_member;

/* Reads the key of a row's call, whose arguments begin at `first`; false if it has no places. Then
 * only deinit. */
bool tt_member_init(tt_member *member, const tt_op_row *row, const tt_key *key, size_t first);
void tt_member_deinit(tt_member *member);

int64_t tt_place_value(const tt_key *key, const tt_place *place);
/* Of an offset or a size; *total: elements that its storage has room for. */
tt_view tt_place_view(const tt_key *key, const tt_place *place, int64_t *total);
/* Marks in a copy of its key that the place is a run-time number; `as`: an offset's motion, a
 * size's bound. */
void tt_place_mark(tt_key *copy, const tt_place *place, int64_t as);

#endif
