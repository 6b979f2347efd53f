/* Bounded values: what a storage holds has room for more elements along a dim or two of its type
 * (their bounds) than count (their lengths, run-time numbers). Programs see the whole of it, so
 * they serve all lengths; what is behind a length is padding, which may be anything, and which
 * nobody ever sees: operators that may read it are those whose rows say how (tt_op_along). */
#ifndef TT_CALL_BOUNDED_H
#define TT_CALL_BOUNDED_H

#include "call/call.h"
#include "call/growing.h"

/* What a dim of that many elements is given room for: a power of two, 64 at least. */
int64_t tt_bound_of(int64_t length);

/* The tensor that the logical view sees in storage of the logical size, as a view of the bounded
 * value, whose interned type this is; a mark's scalar is which bounded dim it is of. False: it
 * does not lie there as a strided view. */
bool tt_bounded_view(const tt_type *type, const tt_reach *reach, const tt_view *logical,
                     tt_view *out, tt_marks *marks);
/* The other way, for a new value: the view that its first tensor has, without the padding. */
tt_view tt_bounded_logical(const tt_view *view, const tt_marks *marks, const tt_reach *reach);
/* How many elements count of a call's result, where these are its packed numbers. */
tt_reach tt_call_result_reach(const tt_call_result *result, const uint32_t *words);
/* The logical view of a call's k-th result, which is a new tensor, where these are its packed
 * numbers. */
tt_view tt_call_result_view(const tt_call *call, size_t k, const uint32_t *words);
/* The type of the value that a new tensor, which `view` with these marks sees, is held in;
 * interned. Orders the marks. INVALID_ARGUMENT: it has too many dims. */
tt_status tt_bounded_type(const tt_view *view, tt_marks *marks, const tt_type **out);
/* An interned bounded type without the padding. */
tt_type tt_bounded_exact(const tt_type *type, const tt_reach *reach);
/* A dense view of a whole storage, with room for `bound` elements along a dim. */
tt_view tt_bounded_cover(const tt_view *view, int dim, int64_t bound);

/* The only dim, of that many, that a list for padding makes longer or shorter; -1: it is not so. */
int tt_padded_dim(const int64_t *pad, size_t count, int rank);

/* The lengths that a call's operands have, and the bounds of each: numbers of the call, in this
 * order, behind its own. */
enum { TT_MOST_LENGTHS = 4 };
typedef struct tt_lengths {
  int count;
  struct {
    int64_t length, bound;
  } of[TT_MOST_LENGTHS];
  int merged_count;
  tt_mark merged[TT_MOST_ALONG]; /* of dims that are merged with others; scalars as in operands */
  uint8_t guide[TT_MAX_RANK]; /* of operands that are broadcast to each other, by dims from the end:
                                 0: it is not known whether it is as long as a length; 1: it is not;
                                 else which one, and 2 */
} tt_lengths;
/* Of an operand in a bounded value of this type; false: there are too many. */
bool tt_lengths_add(tt_lengths *lengths, const tt_type *bounded, const tt_reach *reach);
/* How an operand stands in a call (tt_operand_of). */
typedef struct tt_operand {
  const tt_type *type; /* interned */
  tt_view view;
  tt_marks marks;
  int lengths[TT_MOST_ALONG]; /* as a tt_call_tensor has them, and what follows */
  int more_dim;
  int64_t more;
  bool partly;
} tt_operand;
/* The tensor's view of its storage as that is, where the call sees it longer by `more`. */
tt_view tt_bounded_shortened(const tt_call_tensor *tensor);
/* An operand as it is seen: numbers that are repeated along as many elements as one of its dims
 * has, where that is merged with others, are marked so, too. */
void tt_lengths_add_merged(tt_lengths *lengths, const tt_operand *seen);
/* All operands are broadcast to each other: where this one is marked so are they, and only there.
 */
void tt_lengths_guide(tt_lengths *lengths, const tt_operand *seen);
enum { TT_FEW_LEFT_OUT = 8 }; /* a slice that leaves out fewer is nearly as long as a length */
/* A size that varies; or one that does if it is one of live values. */
void tt_lengths_add_size(tt_lengths *lengths, int64_t size);
void tt_lengths_recall_size(tt_lengths *lengths, tt_growing *growing, int64_t size);
/* Which of them is a size; -1: none. */
int tt_lengths_find(const tt_lengths *lengths, int64_t size);
/* Of a view of an exact storage, those of its sizes that are lengths of live values: where it is a
 * part of the storage, or repeats an element of it. */
void tt_lengths_recall(tt_lengths *lengths, tt_growing *growing, const tt_view *view,
                       const tt_type *storage);

typedef enum tt_use {
  TT_USE_READ,
  TT_USE_WRITE,
  TT_USE_FILL /* an unwritten storage is written */
} tt_use;

/* Of a view of part of a bounded value: its sizes that are all but a few of a length's elements, or
 * lengths of live values. */
void tt_lengths_recall_part(tt_lengths *lengths, tt_growing *growing, const tt_view *view,
                            const tt_type *bounded, const tt_reach *reach);

/* How an operand stands in a call whose operands have these lengths. Where a length is its size
 * along a dim it is seen as wide as the bound: if its storage is exact and is filled altogether, or
 * if it repeats one element there and is read, or its storage has as much; a bounded one is given
 * more where it does not. Scalars are places among the lengths. False: it is in a bounded value,
 * and not as a call can see it. */
bool tt_operand_of(const tt_lengths *lengths, const tt_type *type, const tt_type *bounded,
                   const tt_reach *reach, tt_use use, const tt_view *view, tt_operand *out);

#endif
