#include "ops/linalg/linalg.h"

/* column - row of each element of the last two dims, as i32. */
static tt_node *offsets(tt_lower *cx, const tt_type *shape) {
  tt_type type = *shape;
  type.dtype = TT_I32;
  int row = type.rank - 2, column = type.rank - 1;
  return tt_hlo_subtract(cx->h, tt_place_counted(cx, 0, column, tt_hlo_iota(cx->h, &type, column)),
                         tt_place_counted(cx, 0, row, tt_hlo_iota(cx->h, &type, row)));
}

tt_node *tt_triangle(tt_lower *cx, tt_node *x, tt_cmp keep, int64_t diagonal) {
  int64_t limit = INT32_MAX;
  int64_t bound = diagonal > limit ? limit : diagonal < -limit ? -limit : diagonal;
  tt_node *inside =
      tt_hlo_compare(cx->h, keep, offsets(cx, &x->type), tt_hlo_const_i(cx->h, TT_I32, bound));
  return tt_hlo_select(cx->h, inside, x, tt_hlo_zeros(cx->h, &x->type));
}

tt_node *tt_identity_matrix(tt_lower *cx, const tt_type *type) {
  tt_node *same = tt_hlo_compare(cx->h, TT_EQ, offsets(cx, type), tt_hlo_const_i(cx->h, TT_I32, 0));
  return tt_cast(cx, same, type->dtype);
}

tt_node *tt_adjoint(tt_lower *cx, tt_node *x) { return tt_conjugate(cx, tt_swap_last(cx, x)); }

tt_node *tt_matrix_product(tt_lower *cx, tt_node *a, tt_node *b) {
  int rank = a->type.rank;
  return tt_contract(cx, a, b, rank - 2, rank - 1, rank - 2, a->type.dtype);
}

tt_node *tt_finite(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  if (!tt_is_complex(x->type.dtype)) return tt_hlo_is_finite(h, x);
  return tt_hlo_and(h, tt_hlo_is_finite(h, tt_hlo_real(h, x)),
                    tt_hlo_is_finite(h, tt_hlo_imag(h, x)));
}

void tt_match_batches(tt_lower *cx, tt_node **a, tt_node **b) {
  if (!tt_need_rank(cx, *a, 2) || !tt_need_rank(cx, *b, 2)) return;
  tt_type ta = (*a)->type, tb = (*b)->type;
  int rank = ta.rank > tb.rank ? ta.rank : tb.rank;
  int64_t da[TT_MAX_RANK], db[TT_MAX_RANK];
  for (int i = 0; i < rank - 2; i++) {
    int ia = i - (rank - ta.rank), ib = i - (rank - tb.rank);
    int64_t na = ia < 0 ? 1 : ta.dims[ia], nb = ib < 0 ? 1 : tb.dims[ib];
    da[i] = db[i] = na == 1 ? nb : na;
  }
  for (int i = 1; i <= 2; i++) {
    da[rank - i] = ta.dims[ta.rank - i];
    db[rank - i] = tb.dims[tb.rank - i];
  }
  *a = tt_hlo_broadcast_to(cx->h, *a, rank, da);
  *b = tt_hlo_broadcast_to(cx->h, *b, rank, db);
}

tt_node *tt_with_columns(tt_lower *cx, tt_node *x, int64_t n) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  high[x->type.rank - 1] = n - x->type.dims[x->type.rank - 1];
  return tt_hlo_pad(cx->h, x, tt_like(cx, x, 0), low, high, NULL);
}

tt_node *tt_with_rows(tt_lower *cx, tt_node *x, int64_t m) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  high[x->type.rank - 2] = m - x->type.dims[x->type.rank - 2];
  return tt_hlo_pad(cx->h, x, tt_like(cx, x, 0), low, high, NULL);
}

tt_node *tt_by_column(tt_lower *cx, tt_node *v, const tt_type *matrix, bool by_row) {
  int map[TT_MAX_RANK], rank = v->type.rank;
  if (!tt_need_rank(cx, v, 1)) return v;
  for (int i = 0; i < rank; i++) map[i] = i;
  map[rank - 1] = by_row ? rank - 1 : rank;
  return tt_hlo_broadcast(cx->h, v, map, matrix->rank, matrix->dims);
}

void tt_out_of_nothing(tt_lower *cx, int count) {
  for (int k = 0; k < count; k++) {
    const tt_type *type = tt_meta_type(cx, k);
    bool matrix = type->rank >= 2 && tt_type_numel(type) > 0;
    tt_out(cx, k, matrix ? tt_identity_matrix(cx, type) : tt_hlo_zeros(cx->h, type));
  }
}

bool tt_leaves_errors(tt_lower *cx, int i) {
  if (!tt_bool(cx, i)) return true;
  tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "%s: the host checks for errors", cx->row->name);
  return false;
}
