/* What rules (call/spread.h) note as they go through a call's operands. A dim's code is a letter of
 * a rule's, a place in its "...", counted from the end, or a dim of an operand. */
#ifndef TT_CALL_SPREADING_H
#define TT_CALL_SPREADING_H

#include "call/bounded.h"

enum { TT_MOST_SPREAD = 16 };

typedef struct tt_spread {
  struct {
    int code; /* of a dim, as the row's rule has it */
    int64_t size;
    tt_mark mark;
  } known[TT_MOST_SPREAD];
  int known_count;
  tt_call_length lengths[TT_MOST_SPREAD];
  int length_count;
} tt_spread;

enum { TT_CODE_ELLIPSIS = 256, TT_CODE_DIM = 512, TT_CODE_NONE = -1 };

/* Where a code is among those that are known; known_count: nowhere. */
int tt_spread_find(const tt_spread *s, int code);
bool tt_spread_same(const tt_mark *a, const tt_mark *b); /* whatever dims they are of */
bool tt_spread_same_all(const tt_marks *a, const tt_marks *b);
/* A tensor's dim with this code is marked; false: another one's is marked otherwise. */
bool tt_spread_note(tt_spread *s, int code, const tt_call_tensor *tensor, const tt_mark *mark);
/* Each of its marked dims is, with the dim itself as the code. */
bool tt_spread_note_dims(tt_spread *s, const tt_call_tensor *tensor);
/* The lowering is told the length along a tensor's marked dim, to leave out its padding. */
bool tt_spread_leave_out(tt_spread *s, int tensor, const tt_mark *mark);
/* The codes of as many dims, by a pattern of a rule; of none always. False: it has not as many. */
bool tt_spread_codes(const char *pattern, int rank, int *codes);
/* Dims whose codes are known are marked, or have one element. */
bool tt_spread_agrees(const tt_spread *s, const tt_call_tensor *tensor, const int *codes);

#endif
