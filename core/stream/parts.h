/* A section taken apart: consecutive stretches of its operators, which become sections of their
 * own and are launched one by one. All functions: under the device's lock. */
#ifndef TT_PARTS_H
#define TT_PARTS_H

#include "call/element.h"
#include "stream/section.h"

enum { TT_PARTS_WHOLE = -1 };

typedef struct tt_parts {
  const tt_section *whole;
  tt_trace_node **path; /* [whole->at->depth] the operators */
  /* Once it is divided: */
  bool *needed; /* [whole->at->depth] somebody uses one of the operator's results */
  int *number;  /* [whole->at->depth] of the part that the operator is in */
  int *reader;  /* [whole->slot_count] the last part that reads the slot, or -1 */
  int *slot_of; /* [whole->slot_count] where it stands in the current part, or -1 */
  int *slots;   /* room for the inputs of one operator */
} tt_parts;

/* `live` of the section is filled in. Deinit also after a failure. */
tt_status tt_parts_init(tt_parts *parts, const tt_section *whole);
void tt_parts_deinit(tt_parts *parts);
/* Before anything is cut. ends[i]: how many operators part i and those before it have; the last of
 * `count` ends is the whole section's. Operators that nobody needs are left out, unless the parts
 * are to be as they were recorded. */
void tt_parts_divide(tt_parts *parts, const int *ends, int count, bool as_recorded);
/* Operators `first` to `last` as a section, which the caller has initialised and deinits; its
 * `live` is filled in. `number`: of the element that is meant of their lists, or TT_PARTS_WHOLE. */
tt_status tt_parts_cut(tt_parts *parts, int first, int last, int number, tt_section *out);
/* The length of the lists that operators `first` (needed) to `last` work on, if that is one, and
 * many of their elements are alike and have nothing to do with one another; else 0. */
int tt_parts_elements(const tt_parts *parts, int first, int last);

#endif
