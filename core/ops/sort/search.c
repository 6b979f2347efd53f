/* Searching in sorted sequences. */
#include "ops/sort/search.h"

#include <string.h>

/* Whether an element of the sequence comes before the value. */
static tt_node *is_before(tt_hlo *h, tt_node *element, tt_node *value, bool right) {
  return tt_hlo_not(h, tt_hlo_compare(h, right ? TT_GT : TT_GE, element, value));
}

/* Short sequences: counts the elements that come before. */
static tt_node *count_before(tt_lower *cx, tt_node *sequence, tt_node *values, bool right) {
  tt_hlo *h = cx->h;
  tt_type type = values->type;
  int rank = type.rank, last = sequence->type.rank - 1, map[TT_MAX_RANK], own[TT_MAX_RANK];
  type.dims[type.rank++] = sequence->type.dims[last];
  for (int i = 0; i < rank; i++) map[i] = i;
  for (int i = 0; i < last; i++) own[i] = i;
  own[last] = rank;
  tt_node *elements = tt_hlo_broadcast(h, sequence, own, type.rank, type.dims);
  tt_node *each = tt_hlo_broadcast(h, values, map, type.rank, type.dims);
  tt_node *before = tt_hlo_convert(h, is_before(h, elements, each, right), TT_I64);
  return tt_hlo_reduce(h, TT_SUM, before, &rank, 1);
}

static tt_node *probe(tt_lower *cx, tt_node *sequence, tt_node *at) {
  int last = sequence->type.rank - 1;
  return last == 0 ? tt_hlo_take(cx->h, sequence, at, 0)
                   : tt_hlo_take_along(cx->h, sequence, at, last);
}

enum { SHORT = 32 };

tt_node *tt_search(tt_lower *cx, tt_node *sequence, tt_node *values, bool right) {
  tt_hlo *h = cx->h;
  tt_type index = values->type;
  index.dtype = TT_I64;
  int64_t n = sequence->type.rank > 0 ? sequence->type.dims[sequence->type.rank - 1] : 0, bit = 1;
  if (n == 0 || tt_type_numel(&index) == 0) return tt_hlo_zeros(h, &index);
  if (n <= SHORT && index.rank < TT_MAX_RANK) return count_before(cx, sequence, values, right);
  tt_node *found = tt_hlo_zeros(h, &index), *size = tt_hlo_const_i(h, TT_I64, n);
  while (bit <= n / 2) bit <<= 1;
  for (; bit > 0; bit >>= 1) {
    tt_node *next = tt_hlo_add(h, found, tt_hlo_const_i(h, TT_I64, bit));
    tt_node *at = tt_hlo_subtract(h, tt_hlo_minimum(h, next, size), tt_hlo_const_i(h, TT_I64, 1));
    tt_node *go = is_before(h, probe(cx, sequence, at), values, right);
    go = tt_hlo_and(h, go, tt_hlo_compare(h, TT_LE, next, size));
    found = tt_hlo_select(h, go, next, found);
  }
  return found;
}

static tt_dtype search_dtype(const tt_lower *cx) {
  return cx->result_type == TT_BOOL ? TT_U8 : cx->result_type;
}

static void state_search(tt_lower *cx, tt_node *sequence, tt_node *values, bool right) {
  tt_dtype dtype = search_dtype(cx);
  tt_out_as(cx, 0, tt_search(cx, tt_cast(cx, sequence, dtype), tt_cast(cx, values, dtype), right));
}

/* self, boundaries, out_int32, right */
void tt_lower_bucketize(tt_lower *cx) {
  if (tt_in(cx, 1)->type.rank != 1) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "bucketize: boundaries must have 1 dim, got %d",
                tt_in(cx, 1)->type.rank);
    return;
  }
  state_search(cx, tt_in(cx, 1), tt_in(cx, 0), tt_bool(cx, 3));
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
  state_search(cx, sequence, tt_in(cx, 1), right);
}

/* rows, size, out_int32: where each of `size` rows begins in the ascending list, and the end. */
void tt_lower_compress_rows(tt_lower *cx) {
  int64_t count = tt_int(cx, 1) + 1;
  tt_node *rows = tt_in(cx, 0);
  tt_type type = tt_type_make(rows->type.dtype, 1, &count);
  tt_out_as(cx, 0, tt_search(cx, rows, tt_hlo_iota(cx->h, &type, 0), false));
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
  parts[count++] = transpose ? col : tt_search(cx, ends, element, true);
  parts[count++] = transpose ? tt_search(cx, ends, element, true) : col;
  const tt_type *type = tt_meta_type(cx, 0);
  for (int i = 0; i < count; i++) {
    int64_t dims[2] = {1, tt_type_numel(&col->type)};
    parts[i] = tt_hlo_reshape(h, tt_cast(cx, parts[i], type->dtype), 2, dims);
  }
  tt_out_as(cx, 0, tt_hlo_concatenate(h, parts, count, 0));
}
