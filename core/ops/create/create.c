/* Operators that make values from their arguments alone. */
#include "ops/index/index.h"

#include <math.h>

/* `param` names the argument that holds the value; these stand for values that none holds. */
enum { ZEROS = -1, ONES = -2 };

static tt_type result_type(tt_lower *cx) {
  if (cx->meta_types && cx->meta_count > 0) return cx->meta_types[0];
  return tt_in(cx, 0)->type;
}

void tt_lower_full(tt_lower *cx) {
  tt_type type = result_type(cx);
  tt_node *value;
  if (cx->row->param >= 0) value = tt_num(cx, cx->row->param, type.dtype);
  else if (tt_is_complex(type.dtype))
    value = tt_hlo_const_c(cx->h, type.dtype, cx->row->param == ONES, 0.0);
  else value = tt_hlo_const(cx->h, type.dtype, cx->row->param == ONES);
  tt_out(cx, 0, tt_hlo_broadcast_to(cx->h, value, type.rank, type.dims));
}

/* -- Sequences -- */

/* Are all values start + i * step exact in f32? Then nothing wider is needed. */
static bool exact_in_f32(double start, double step, int64_t count) {
  const double limit = 16777216.0;
  double end = start + step * (double)count;
  return start == floor(start) && step == floor(step) && fabs(start) <= limit && fabs(end) <= limit;
}

/* The dtype in which PyTorch's kernels compute a sequence. */
static tt_dtype sequence_dtype(tt_dtype dtype) {
  if (tt_is_integer(dtype) || dtype == TT_BOOL) return TT_I64;
  return dtype == TT_F32 ? TT_F64 : tt_compute_dtype(dtype);
}

/* A sequence is a line; an out= tensor with as many elements takes it row by row. */
static tt_type line_of(const tt_type *type) {
  return (tt_type){.dtype = type->dtype, .rank = 1, .dims = {tt_type_numel(type)}};
}

static void out_rows(tt_lower *cx, const tt_type *type, tt_node *line) {
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, line, type->rank, type->dims));
}

static tt_node *sequence(tt_lower *cx, const tt_type *type, int start_arg, int step_arg) {
  tt_hlo *h = cx->h;
  tt_type index = line_of(type);
  index.dtype = sequence_dtype(type->dtype);
  double start = start_arg >= 0 ? tt_float(cx, start_arg) : 0.0;
  double step = step_arg >= 0 && tt_has(cx, step_arg) ? tt_float(cx, step_arg) : 1.0;
  if (index.dtype == TT_F64 && type->dtype == TT_F32 && exact_in_f32(start, step, index.dims[0]))
    index.dtype = TT_F32;
  tt_node *x = tt_hlo_iota(h, &index, 0);
  if (step != 1.0) x = tt_hlo_multiply(h, x, tt_num(cx, step_arg, index.dtype));
  if (start != 0.0) x = tt_hlo_add(h, x, tt_num(cx, start_arg, index.dtype));
  return tt_cast(cx, x, type->dtype);
}

/* arange(end), arange(start, end), arange(start, end, step): `param` is the number of bounds. */
void tt_lower_arange(tt_lower *cx) {
  const tt_type *type = tt_meta_type(cx, 0);
  int start = cx->row->param > 1 ? 0 : -1, step = cx->row->param > 2 ? 2 : -1;
  out_rows(cx, type, sequence(cx, type, start, step));
}

/* Like arange, but with the end in it. */
void tt_lower_range(tt_lower *cx) {
  int step_arg = cx->row->param > 2 ? 2 : -1;
  tt_type type = {.rank = 1};
  if (cx->meta_types && cx->meta_count > 0) {
    type = cx->meta_types[0];
  } else {
    double step = step_arg < 0 ? 1.0 : tt_float(cx, step_arg);
    double count = floor((tt_float(cx, 1) - tt_float(cx, 0)) / (step != 0.0 ? step : 1.0)) + 1.0;
    type.dtype = tt_dtype_arg(cx, cx->row->param, TT_F32);
    type.dims[0] = count > 0.0 && count < 9e15 ? (int64_t)count : 0;
  }
  out_rows(cx, &type, sequence(cx, &type, 0, step_arg));
}

/* The number's or the scalar tensor's value as PyTorch reads it: first in the result's dtype. */
static tt_node *bound(tt_lower *cx, int arg, tt_dtype result, tt_dtype compute) {
  return tt_cast(cx, tt_num(cx, arg, result), compute);
}

/* `steps` values from start to end, each half counted from its own end. */
static tt_node *evenly_spaced(tt_lower *cx, const tt_type *type, tt_dtype compute) {
  tt_hlo *h = cx->h;
  int64_t steps = tt_type_numel(type);
  tt_node *start = bound(cx, 0, type->dtype, compute), *end = bound(cx, 1, type->dtype, compute);
  if (steps == 1) return tt_hlo_reshape(h, start, 1, &steps);
  tt_type index = {.dtype = TT_I64, .rank = 1, .dims = {steps}};
  tt_node *i = tt_hlo_iota(h, &index, 0);
  tt_node *last = tt_hlo_const_i(h, TT_I64, steps - 1);
  tt_node *gap = tt_hlo_convert(h, last, compute);
  tt_node *step = tt_quotient(cx, tt_hlo_subtract(h, end, start), gap);
  tt_node *up = tt_hlo_multiply(h, tt_hlo_convert(h, i, compute), step);
  tt_node *down = tt_hlo_convert(h, tt_hlo_subtract(h, last, i), compute);
  tt_node *first_half = tt_hlo_compare(h, TT_LT, i, tt_hlo_const_i(h, TT_I64, steps / 2));
  return tt_hlo_select(h, first_half, tt_hlo_add(h, up, start),
                       tt_hlo_subtract(h, end, tt_hlo_multiply(h, down, step)));
}

static tt_dtype spacing_dtype(tt_dtype dtype) {
  return tt_is_integer(dtype) || dtype == TT_BOOL ? TT_F64 : tt_compute_dtype(dtype);
}

void tt_lower_linspace(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  const tt_type *type = tt_meta_type(cx, 0);
  out_rows(cx, type, evenly_spaced(cx, type, spacing_dtype(type->dtype)));
}

void tt_lower_logspace(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  const tt_type *type = tt_meta_type(cx, 0);
  tt_dtype compute = spacing_dtype(type->dtype);
  tt_node *exponent = evenly_spaced(cx, type, compute), *base = tt_num(cx, 3, compute);
  out_rows(cx, type, tt_hlo_power(cx->h, base, exponent));
}

/* -- Matrices -- */

void tt_lower_eye(tt_lower *cx) {
  tt_type index = *tt_meta_type(cx, 0);
  if (index.rank != 2) return;
  index.dtype = TT_I64;
  tt_out_as(
      cx, 0,
      tt_hlo_compare(cx->h, TT_EQ, tt_hlo_iota(cx->h, &index, 0), tt_hlo_iota(cx->h, &index, 1)));
}

typedef struct triangle {
  int64_t rows, columns, offset;
  bool upper;
} triangle;

/* Sum of min(t, columns) for t in 1..m, elementwise; 0 where m < 0. */
static tt_node *staircase(tt_hlo *h, tt_node *m, int64_t columns) {
  tt_node *zero = tt_hlo_const_i(h, TT_I64, 0), *one = tt_hlo_const_i(h, TT_I64, 1);
  tt_node *width = tt_hlo_const_i(h, TT_I64, columns);
  m = tt_hlo_maximum(h, m, zero);
  tt_node *ramp = tt_hlo_minimum(h, m, width);
  tt_node *area = tt_hlo_multiply(h, ramp, tt_hlo_add(h, ramp, one));
  area = tt_hlo_shift_right_logical(h, area, one);
  return tt_hlo_add(h, area, tt_hlo_multiply(h, tt_hlo_subtract(h, m, ramp), width));
}

/* How many elements of the triangle lie in the rows before `row`. */
static tt_node *before_row(tt_hlo *h, const triangle *t, tt_node *row) {
  int64_t offset = t->upper ? t->offset - 1 : t->offset;
  tt_node *shift = tt_hlo_const_i(h, TT_I64, offset);
  tt_node *lower = tt_hlo_subtract(h, staircase(h, tt_hlo_add(h, row, shift), t->columns),
                                   staircase(h, shift, t->columns));
  if (!t->upper) return lower;
  return tt_hlo_subtract(h, tt_hlo_multiply(h, row, tt_hlo_const_i(h, TT_I64, t->columns)), lower);
}

/* Element k's row is the last one that does not start after k; found bit by bit. */
void tt_lower_triangle_indices(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  tt_hlo *h = cx->h;
  const tt_type *type = tt_meta_type(cx, 0);
  triangle t = {.rows = tt_int(cx, 0),
                .columns = tt_int(cx, 1),
                .offset = tt_int(cx, 2),
                .upper = cx->row->param == 1};
  if (type->rank != 2) return;
  tt_type flat = {.dtype = TT_I64, .rank = 1, .dims = {type->dims[1]}};
  tt_node *k = tt_hlo_iota(h, &flat, 0), *row = tt_hlo_zeros(h, &flat);
  int64_t bit = 1;
  while (bit < t.rows) bit <<= 1;
  for (; bit > 0; bit >>= 1) {
    tt_node *next = tt_hlo_add(h, row, tt_hlo_const_i(h, TT_I64, bit));
    tt_node *ok = tt_hlo_and(h, tt_hlo_compare(h, TT_LE, before_row(h, &t, next), k),
                             tt_hlo_compare(h, TT_LT, next, tt_hlo_const_i(h, TT_I64, t.rows)));
    row = tt_hlo_select(h, ok, next, row);
  }
  tt_node *column = tt_hlo_subtract(h, k, before_row(h, &t, row));
  if (t.upper) {
    tt_node *first = tt_hlo_add(h, row, tt_hlo_const_i(h, TT_I64, t.offset));
    first =
        tt_hlo_clamp(h, tt_hlo_const_i(h, TT_I64, 0), first, tt_hlo_const_i(h, TT_I64, t.columns));
    column = tt_hlo_add(h, column, first);
  }
  int64_t one_row[2] = {1, type->dims[1]};
  tt_node *parts[2] = {tt_hlo_reshape(h, row, 2, one_row), tt_hlo_reshape(h, column, 2, one_row)};
  tt_out_as(cx, 0, tt_hlo_concatenate(h, parts, 2, 0));
}
