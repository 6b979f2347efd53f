#include "hlo/internal.h"

#include <string.h>

/* -- Rules -- */

/* The dims that `a` and `b` list are equal, pair by pair. */
static bool dims_agree(const tt_type *x, const tt_attr *a, const tt_type *y, const tt_attr *b,
                       const char *what, tt_why *why) {
  if (!tt_attr_dims(a, x->rank, what, why) || !tt_attr_dims(b, y->rank, what, why)) return false;
  if (a->count != b->count) return tt_hlo_bad(why, "%d and %d %s", a->count, b->count, what);
  for (int i = 0; i < a->count; i++)
    if (x->dims[a->values[i]] != y->dims[b->values[i]])
      return tt_hlo_bad(why, "%s of different sizes in %s and %s", what, tt_hlo_show(why, x),
                        tt_hlo_show(why, y));
  return true;
}

/* Appends the dims of `x` that neither list names; false when the rank limit is passed. */
static bool append_free(const tt_type *x, const tt_attr *batch, const tt_attr *contract,
                        tt_type *out) {
  for (int i = 0; i < x->rank; i++) {
    if (tt_attr_has(batch, i) || tt_attr_has(contract, i)) continue;
    if (out->rank == TT_MAX_RANK) return false;
    out->dims[out->rank++] = x->dims[i];
  }
  return true;
}

static bool rule_dot_general(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *a = tt_operand_type(in, 0), *b = tt_operand_type(in, 1);
  const tt_attr *numbers = tt_attr_find(in, "dot_dimension_numbers");
  const tt_attr *batch_a = tt_attr_field(numbers, "lhs_batching_dimensions");
  const tt_attr *batch_b = tt_attr_field(numbers, "rhs_batching_dimensions");
  const tt_attr *contract_a = tt_attr_field(numbers, "lhs_contracting_dimensions");
  const tt_attr *contract_b = tt_attr_field(numbers, "rhs_contracting_dimensions");
  if (a->dtype != b->dtype)
    return tt_hlo_bad(why, "operands of different dtypes: %s and %s", tt_hlo_show(why, a),
                      tt_hlo_show(why, b));
  if (!dims_agree(a, batch_a, b, batch_b, "batch dimensions", why) ||
      !dims_agree(a, contract_a, b, contract_b, "contracting dimensions", why))
    return false;
  for (int i = 0; i < contract_a->count; i++)
    if (tt_attr_has(batch_a, contract_a->values[i]) || tt_attr_has(batch_b, contract_b->values[i]))
      return tt_hlo_bad(why, "a dimension is both batch and contracting");
  tt_type type = {.dtype = out->dtype};
  for (int i = 0; i < batch_a->count; i++) type.dims[type.rank++] = a->dims[batch_a->values[i]];
  if (!append_free(a, batch_a, contract_a, &type) || !append_free(b, batch_b, contract_b, &type))
    return tt_hlo_bad(why, "the result has more than %d dimensions", TT_MAX_RANK);
  *out = type;
  return true;
}

static bool rule_cholesky(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *a = tt_operand_type(in, 0);
  if (a->rank < 2 || a->dims[a->rank - 1] != a->dims[a->rank - 2])
    return tt_hlo_bad(why, "%s is not a batch of square matrices", tt_hlo_show(why, a));
  *out = *a;
  return true;
}

static bool rule_triangular_solve(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *a = tt_operand_type(in, 0), *b = tt_operand_type(in, 1);
  const tt_attr *left = tt_attr_find(in, "left_side");
  if (!left || !rule_cholesky(in, out, why)) return false;
  tt_type like = *b;
  bool ok = a->rank == b->rank && a->dtype == b->dtype;
  if (ok) {
    int side = left->value ? b->rank - 2 : b->rank - 1;
    ok = b->dims[side] == a->dims[a->rank - 1];
    like.dims[b->rank - 1] = a->dims[a->rank - 1];
    like.dims[b->rank - 2] = a->dims[a->rank - 2];
  }
  if (!ok || !tt_type_equal(&like, a))
    return tt_hlo_bad(why, "%s and %s do not fit", tt_hlo_show(why, a), tt_hlo_show(why, b));
  *out = *b;
  return true;
}

/* The transform, by its attribute's text; -1 if there is none. */
static int fft_kind(const tt_instr *in);

static bool rule_fft(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  const tt_attr *lengths = tt_attr_find(in, "fft_length");
  int kind = fft_kind(in), count = lengths ? lengths->count : 0;
  if (kind < 0 || count < 1 || count > 3 || count > x->rank)
    return tt_hlo_bad(why, "%d lengths for %s, expected 1 to 3", count, tt_hlo_show(why, x));
  if (tt_is_complex(x->dtype) == (kind == TT_RFFT) ||
      (kind == TT_RFFT && x->dtype != TT_F32 && x->dtype != TT_F64))
    return tt_hlo_bad(why, "%s is of the wrong dtype for this transform", tt_hlo_show(why, x));
  *out = *x;
  if (kind == TT_RFFT) out->dtype = tt_dtype_complex(x->dtype);
  if (kind == TT_IRFFT) out->dtype = tt_dtype_real(x->dtype);
  for (int i = 0; i < count; i++) {
    int dim = x->rank - count + i;
    int64_t length = lengths->values[i];
    bool halved = i == count - 1 && kind >= TT_RFFT;
    int64_t expected = halved && kind == TT_IRFFT ? length / 2 + 1 : length;
    if (length < 0 || x->dims[dim] != expected)
      return tt_hlo_bad(why, "length %lld does not fit dimension %d of %s", (long long)length, dim,
                        tt_hlo_show(why, x));
    if (halved) out->dims[dim] = kind == TT_RFFT ? length / 2 + 1 : length;
  }
  return true;
}

/* -- Builders -- */

static const char *const precisions[] = {
    [TT_PRECISION_DEFAULT] = NULL,
    [TT_PRECISION_HIGH] = "[#stablehlo<precision HIGH>, #stablehlo<precision HIGH>]",
    [TT_PRECISION_HIGHEST] = "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"};

int tt_hlo_add_precision(const tt_hlo *h, const tt_node *operand, tt_attr *attrs, int count) {
  const char *text = precisions[h->precision];
  tt_dtype dtype = operand->type.dtype;
  if (text && (dtype == TT_F32 || dtype == TT_C64))
    attrs[count++] = tt_attr_text("precision_config", text);
  return count;
}

tt_node *tt_hlo_dot_general(tt_hlo *h, tt_node *a, tt_node *b, const int *batch_a,
                            const int *batch_b, int batch, const int *contract_a,
                            const int *contract_b, int contract, tt_dtype result) {
  TT_NEED(h, dot_general, a, b);
  tt_attr fields[] = {tt_attr_list(h, "lhs_batching_dimensions", batch_a, batch),
                      tt_attr_list(h, "rhs_batching_dimensions", batch_b, batch),
                      tt_attr_list(h, "lhs_contracting_dimensions", contract_a, contract),
                      tt_attr_list(h, "rhs_contracting_dimensions", contract_b, contract)};
  tt_attr attrs[2] = {tt_attr_struct("dot_dimension_numbers", "#stablehlo.dot<", fields, 4)};
  int count = tt_hlo_add_precision(h, a, attrs, 1);
  return tt_hlo_emit1(h, TT_DRAFT(dot_general, attrs, count, a, b), (tt_type){.dtype = result});
}

tt_node *tt_hlo_cholesky(tt_hlo *h, tt_node *a, bool lower) {
  TT_NEED(h, cholesky, a);
  tt_attr attrs[] = {tt_attr_bool("lower", lower)};
  return tt_hlo_emit1(h, TT_DRAFT(cholesky, attrs, 1, a), a->type);
}

tt_node *tt_hlo_triangular_solve(tt_hlo *h, tt_node *a, tt_node *b, bool left, bool lower,
                                 bool unit_diagonal, int transpose) {
  static const char *const names[] = {"#stablehlo<transpose NO_TRANSPOSE>",
                                      "#stablehlo<transpose TRANSPOSE>",
                                      "#stablehlo<transpose ADJOINT>"};
  TT_NEED(h, triangular_solve, a, b);
  if (transpose < 0 || transpose > 2)
    return tt_hlo_fail(h, TT_INTERNAL, "stablehlo.triangular_solve: transpose %d", transpose);
  tt_attr attrs[] = {tt_attr_bool("left_side", left), tt_attr_bool("lower", lower),
                     tt_attr_bool("unit_diagonal", unit_diagonal),
                     tt_attr_text("transpose_a", names[transpose])};
  return tt_hlo_emit1(h, TT_DRAFT(triangular_solve, attrs, 4, a, b), b->type);
}

static const char *const ffts[] = {[TT_FFT] = "#stablehlo<fft_type FFT>",
                                   [TT_IFFT] = "#stablehlo<fft_type IFFT>",
                                   [TT_RFFT] = "#stablehlo<fft_type RFFT>",
                                   [TT_IRFFT] = "#stablehlo<fft_type IRFFT>"};

static int fft_kind(const tt_instr *in) {
  const tt_attr *attr = tt_attr_find(in, "fft_type");
  for (int i = 0; attr && attr->text && i < 4; i++)
    if (!strcmp(attr->text, ffts[i])) return i;
  return -1;
}

tt_node *tt_hlo_fft(tt_hlo *h, tt_node *x, tt_fft type, const int64_t *lengths, int count) {
  TT_NEED(h, fft, x);
  tt_attr attrs[] = {tt_attr_text("fft_type", ffts[type]),
                     tt_attr_i64s("fft_length", lengths, count)};
  return tt_hlo_emit1(h, TT_DRAFT(fft, attrs, 2, x), x->type);
}
