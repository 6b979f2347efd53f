/* Where ranks part: what each rank of a group says of the collectives that it issues, and the first
 * of them at which they differ. */
#ifndef TT_ISSUE_H
#define TT_ISSUE_H

#include "dist/dist.h"

typedef struct tt_issue {
  int64_t sequence; /* in the group */
  const char *what; /* equal on all ranks: "all_reduce (SUM) of 3 f32" */
  const char *line; /* the Python line that asked for it, or "" */
  /* Of all_to_all, if given: what is sent to each rank, and taken from each. */
  const int64_t *x_splits, *y_splits;
  int64_t split_count; /* of each of the two */
} tt_issue;

/* What one rank has issued, in the order of the group. */
typedef struct tt_issues {
  int64_t rank; /* its number in the whole program */
  tt_issue *all;
  int64_t count;
} tt_issues;

/* This one, of which `unit` ("f32", "bytes") names its elements; in the arena, but for the splits.
 * ranks: [c->size], of the group, by their numbers in the whole program. */
tt_status tt_issue_of(tt_arena *arena, const tt_collective *c, const char *unit,
                      const int64_t *ranks, tt_issue *out);

/* The last ones of a group in the process's flight record, without messages; in the arena.
 * ranks: [size], as above. */
tt_status tt_issues_recorded(tt_arena *arena, const char *group, const int64_t *ranks, int size,
                             tt_issues *out);

/* As one text, and back from it, into the arena; out->rank is left as it is. */
void tt_issues_pack(const tt_issues *issues, tt_text *text);
tt_status tt_issues_unpack(tt_arena *arena, const char *text, tt_issues *out);

/* Adds "collective 5: rank 0: all_reduce .. at train.py:12; rank 1: ..": the first one, of those
 * that all of them tell of, that differs. Nothing if none does. */
void tt_issues_part(const tt_issues *ranks, int count, tt_text *text);

#endif
