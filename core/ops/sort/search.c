/* Searching in sorted sequences. */
#include "ops/sort/search.h"

#include <string.h>

typedef struct search {
  tt_node *sequence, *values;
  tt_node *before; /* of a short sequence: bit k of it: whether element k comes before; U32 */
  bool right;
} search;

/* Whether an element of the sequence comes before the value. */
static tt_node *is_before(tt_hlo *h, tt_node *element, tt_node *value, bool right) {
  return tt_hlo_not(h, tt_hlo_compare(h, right ? TT_GT : TT_GE, element, value));
}

enum { SHORT = 32 };

static tt_node *bits_before(tt_lower *cx, const search *s) {
  tt_hlo *h = cx->h;
  tt_type type = s->values->type;
  int rank = type.rank, last = s->sequence->type.rank - 1, map[TT_MAX_RANK], own[TT_MAX_RANK];
  type.dims[type.rank++] = s->sequence->type.dims[last];
  for (int i = 0; i < rank; i++) map[i] = i;
  for (int i = 0; i < last; i++) own[i] = i;
  own[last] = rank;
  tt_node *elements = tt_hlo_broadcast(h, s->sequence, own, type.rank, type.dims);
  tt_node *each = tt_hlo_broadcast(h, s->values, map, type.rank, type.dims);
  tt_node *bits = tt_hlo_convert(h, is_before(h, elements, each, s->right), TT_U32);
  return tt_hlo_reduce(h, TT_SUM, tt_hlo_shift_left(h, bits, tt_hlo_iota(h, &bits->type, rank)),
                       &rank, 1);
}

/* Whether the element at a place comes before the value. */
static tt_node *probe(tt_lower *cx, const search *s, tt_node *at) {
  tt_hlo *h = cx->h;
  int last = s->sequence->type.rank - 1;
  if (s->before) {
    tt_node *bit = tt_hlo_shift_right_logical(h, s->before, tt_hlo_convert(h, at, TT_U32));
    return tt_hlo_convert(h, tt_hlo_and(h, bit, tt_hlo_const_i(h, TT_U32, 1)), TT_BOOL);
  }
  tt_node *element =
      last == 0 ? tt_hlo_take(h, s->sequence, at, 0) : tt_hlo_take_along(h, s->sequence, at, last);
  return is_before(h, element, s->values, s->right);
}

/* PyTorch's own bisection, so that it finds the same where the sequence is not ascending, or ends
 * with NaN. */
tt_node *tt_search(tt_lower *cx, tt_node *sequence, tt_node *count, tt_node *values, bool right) {
  tt_hlo *h = cx->h;
  tt_type index = values->type;
  index.dtype = TT_I64;
  search s = {sequence, values, NULL, right};
  int64_t n = sequence->type.rank > 0 ? sequence->type.dims[sequence->type.rank - 1] : 0;
  if (n == 0 || tt_type_numel(&index) == 0) return tt_hlo_zeros(h, &index);
  if (n <= SHORT && index.rank < TT_MAX_RANK) s.before = bits_before(cx, &s);
  if (!count) count = tt_hlo_const_i(h, TT_I64, n);
  tt_node *start = tt_hlo_zeros(h, &index), *one = tt_hlo_const_i(h, TT_I64, 1);
  tt_node *end = tt_hlo_broadcast_to(h, count, index.rank, index.dims);
  for (int64_t left = n; left > 0; left >>= 1) {
    tt_node *middle = tt_hlo_shift_right_logical(h, tt_hlo_add(h, start, end), one);
    tt_node *before = probe(cx, &s, middle), *open = tt_hlo_compare(h, TT_LT, start, end);
    tt_node *up = tt_hlo_and(h, open, before), *down = tt_hlo_and(h, open, tt_hlo_not(h, before));
    start = tt_hlo_select(h, up, tt_hlo_add(h, middle, one), start);
    end = tt_hlo_select(h, down, middle, end);
  }
  return start;
}

static tt_dtype search_dtype(const tt_lower *cx) {
  return cx->result_type == TT_BOOL ? TT_U8 : cx->result_type;
}

/* In the sequence that argument `arg` is. */
static void state_search(tt_lower *cx, int arg, tt_node *sequence, tt_node *values, bool right) {
  tt_dtype dtype = search_dtype(cx);
  int last = sequence->type.rank - 1;
  bool padded = tt_padded_along(cx, arg, last);
  tt_node *count = padded ? tt_count(cx, arg, &last, 1, TT_I64) : NULL;
  sequence = tt_cast(cx, sequence, dtype);
  tt_out_as(cx, 0, tt_search(cx, sequence, count, tt_cast(cx, values, dtype), right));
}

/* self, boundaries, out_int32, right */
void tt_lower_bucketize(tt_lower *cx) {
  if (tt_in(cx, 1)->type.rank != 1) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "bucketize: boundaries must have 1 dim, got %d",
                tt_in(cx, 1)->type.rank);
    return;
  }
  state_search(cx, 1, tt_in(cx, 1), tt_in(cx, 0), tt_bool(cx, 3));
}

/* sorted_sequence, self, out_int32, right, side, sorter */
void tt_lower_searchsorted(tt_lower *cx) {
  tt_node *sequence = tt_in(cx, 0);
  bool right = tt_bool(cx, 3) || strcmp(tt_str(cx, 4), "right") == 0;
  if (tt_has(cx, 5)) {
    tt_check_index(cx, tt_in(cx, 5), sequence->type.dims[sequence->type.rank - 1], false,
                   TT_INVALID_ARGUMENT, "sorter");
    sequence = tt_hlo_take_along(cx->h, sequence, tt_in(cx, 5), sequence->type.rank - 1);
  }
  state_search(cx, 0, sequence, tt_in(cx, 1), right);
}

/* rows, size, out_int32: where each of `size` rows begins in the ascending list, and the end. */
void tt_lower_compress_rows(tt_lower *cx) {
  int64_t count = tt_int(cx, 1) + 1;
  tt_node *rows = tt_in(cx, 0);
  tt_type type = tt_type_make(rows->type.dtype, 1, &count);
  tt_out_as(cx, 0, tt_search(cx, rows, NULL, tt_hlo_iota(cx->h, &type, 0), false));
}

/* crow, col, out_int32, transpose: for each element its place in the batch, its row and column. */
void tt_lower_expand_rows(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *crow = tt_in(cx, 0), *col = tt_in(cx, 1), *parts[TT_MAX_RANK + 1];
  int last = col->type.rank - 1, count = 0;
  if (!tt_need_rank(cx, crow, last + 1) || !tt_need_rank(cx, col, 1)) return;
  tt_node *ends = tt_hlo_slice_dim(h, crow, last, 1, crow->type.dims[last], 1);
  tt_node *element = tt_hlo_iota(h, &col->type, last);
  for (; count < last; count++) parts[count] = tt_hlo_iota(h, &col->type, count);
  bool transpose = tt_bool(cx, 3);
  parts[count++] = transpose ? col : tt_search(cx, ends, NULL, element, true);
  parts[count++] = transpose ? tt_search(cx, ends, NULL, element, true) : col;
  const tt_type *type = tt_meta_type(cx, 0);
  for (int i = 0; i < count; i++) {
    int64_t dims[2] = {1, tt_type_numel(&col->type)};
    parts[i] = tt_hlo_reshape(h, tt_cast(cx, parts[i], type->dtype), 2, dims);
  }
  tt_out_as(cx, 0, tt_hlo_concatenate(h, parts, count, 0));
}
