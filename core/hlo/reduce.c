#include "hlo/internal.h"

/* `n` arrays of one shape, then their `n` rank-0 initial values, and a region that combines. */
static bool check_reducer(const tt_instr *in, int n, tt_why *why) {
  const tt_type *first = tt_operand_type(in, 0);
  if (n < 1 || in->operand_count != 2 * n || in->result_count != n)
    return tt_hlo_bad(why, "%d operands and %d results, expected an initial value for each array",
                      in->operand_count, in->result_count);
  tt_type *types = tt_malloc(2 * (size_t)n * sizeof *types);
  if (!types) return tt_hlo_bad_memory(why);
  bool ok = true;
  for (int i = 0; ok && i < n; i++) {
    const tt_type *x = tt_operand_type(in, i), *init = tt_operand_type(in, n + i);
    types[i] = types[n + i] = (tt_type){.dtype = x->dtype};
    if (!tt_type_same_dims(x, first))
      ok = tt_hlo_bad(why, "array %d is %s, array 0 is %s", i, tt_hlo_show(why, x),
                      tt_hlo_show(why, first));
    else if (!tt_type_equal(init, &types[i]))
      ok = tt_hlo_bad(why, "initial value %d is %s, expected %s", i, tt_hlo_show(why, init),
                      tt_hlo_show(why, &types[i]));
  }
  ok = ok && tt_region_is(in, 0, 2 * n, types, n, types, why);
  tt_free(types);
  return ok;
}

static bool rule_reduce(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  const tt_attr *dims = tt_attr_find(in, "dimensions");
  if (!check_reducer(in, in->operand_count / 2, why) ||
      !tt_attr_dims(dims, x->rank, "dimensions", why))
    return false;
  tt_type kept = {0};
  for (int i = 0; i < x->rank; i++)
    if (!tt_attr_has(dims, i)) kept.dims[kept.rank++] = x->dims[i];
  for (int i = 0; i < in->result_count; i++) {
    out[i] = kept;
    out[i].dtype = tt_operand_type(in, i)->dtype;
  }
  return true;
}

static bool rule_reduce_window(const tt_instr *in, tt_type *out, tt_why *why) {
  tt_type type = *tt_operand_type(in, 0);
  const tt_attr *size = tt_attr_find(in, "window_dimensions");
  const tt_attr *stride = tt_attr_find(in, "window_strides");
  const tt_attr *base = tt_attr_find(in, "base_dilations");
  const tt_attr *dilation = tt_attr_find(in, "window_dilations");
  const tt_attr *padding = tt_attr_find(in, "padding");
  int rank = type.rank;
  if (!check_reducer(in, in->operand_count / 2, why) ||
      !tt_attr_sized(size, rank, "window_dimensions", why) ||
      !tt_attr_sized(stride, rank, "window_strides", why) ||
      !tt_attr_sized(base, rank, "base_dilations", why) ||
      !tt_attr_sized(dilation, rank, "window_dilations", why) ||
      !tt_attr_sized(padding, 2 * rank, "padding", why))
    return false;
  for (int i = 0; i < rank; i++)
    if (!tt_window_count(type.dims[i], base->values[i], padding->values[2 * i],
                         padding->values[2 * i + 1], size->values[i], dilation->values[i],
                         stride->values[i], &type.dims[i]))
      return tt_hlo_bad(why, "the window does not fit dimension %d of %s", i,
                        tt_hlo_show(why, tt_operand_type(in, 0)));
  for (int i = 0; i < in->result_count; i++) {
    out[i] = type;
    out[i].dtype = tt_operand_type(in, i)->dtype;
  }
  return true;
}

static bool rule_select_and_scatter(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0), *source = tt_operand_type(in, 1);
  const tt_attr *size = tt_attr_find(in, "window_dimensions");
  const tt_attr *stride = tt_attr_find(in, "window_strides");
  const tt_attr *padding = tt_attr_find(in, "padding");
  tt_type windows = *x, scalars[2] = {{.dtype = x->dtype}, {.dtype = x->dtype}};
  tt_type verdict = {.dtype = TT_BOOL};
  if (!tt_attr_sized(size, x->rank, "window_dimensions", why) ||
      !tt_attr_sized(stride, x->rank, "window_strides", why) ||
      !tt_attr_sized(padding, 2 * x->rank, "padding", why) ||
      !tt_region_is(in, 0, 2, scalars, 1, &verdict, why) ||
      !tt_region_is(in, 1, 2, scalars, 1, scalars, why))
    return false;
  bool ok = tt_type_equal(tt_operand_type(in, 2), scalars);
  for (int i = 0; ok && i < x->rank; i++)
    ok = tt_window_count(x->dims[i], 1, padding->values[2 * i], padding->values[2 * i + 1],
                         size->values[i], 1, stride->values[i], &windows.dims[i]);
  if (!ok || !tt_type_equal(source, &windows))
    return tt_hlo_bad(why, "the source is %s, the windows over %s make %s",
                      tt_hlo_show(why, source), tt_hlo_show(why, x), tt_hlo_show(why, &windows));
  *out = *x;
  return true;
}

/* -- Builders -- */

/* The op that combines two values; `dtype` bool turns MAX and MIN into OR and AND. */
static tt_hlo_op reducer_op(tt_reducer reducer, tt_dtype dtype) {
  static const tt_hlo_op ops[] = {[TT_SUM] = TT_HLO_add,     [TT_PROD] = TT_HLO_multiply,
                                  [TT_MAX] = TT_HLO_maximum, [TT_MIN] = TT_HLO_minimum,
                                  [TT_AND] = TT_HLO_and,     [TT_OR] = TT_HLO_or};
  if (dtype == TT_BOOL && reducer == TT_MAX) return TT_HLO_or;
  if (dtype == TT_BOOL && reducer == TT_MIN) return TT_HLO_and;
  return ops[reducer];
}

/* false and a sticky error when the reducer has no meaning for the dtype. */
static bool reducer_fits(tt_hlo *h, tt_reducer reducer, tt_dtype dtype) {
  static const char *const names[] = {"sum", "prod", "max", "min", "and", "or"};
  bool boolean = dtype == TT_BOOL, bits = reducer == TT_AND || reducer == TT_OR;
  bool fits = bits ? boolean || tt_is_integer(dtype)
                   : !(boolean && (reducer == TT_SUM || reducer == TT_PROD)) &&
                         !(tt_is_complex(dtype) && (reducer == TT_MAX || reducer == TT_MIN));
  if (!fits)
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "no reduction %s of %s values; convert them first",
                names[reducer], tt_dtype_name(dtype));
  return fits;
}

tt_node *tt_hlo_identity(tt_hlo *h, tt_reducer reducer, tt_dtype dtype) {
  if (h->error || !reducer_fits(h, reducer, dtype)) return tt_hlo_poison(h);
  switch (reducer) {
  case TT_PROD:
    return tt_hlo_const(h, dtype, 1);
  case TT_MAX:
    return tt_hlo_lowest(h, dtype);
  case TT_MIN:
    return tt_hlo_highest(h, dtype);
  case TT_AND:
    return tt_hlo_const_i(h, dtype, -1);
  case TT_SUM:
  case TT_OR:
    break;
  }
  return tt_hlo_const(h, dtype, 0);
}

static void combine(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  results[0] = tt_hlo_combine(h, *(const tt_hlo_op *)user, args[0], args[1]);
}

tt_block *tt_hlo_reducer_region(tt_hlo *h, int op, tt_reducer reducer, tt_dtype dtype) {
  tt_type scalars[2] = {{.dtype = dtype}, {.dtype = dtype}};
  tt_hlo_op combiner = reducer_op(reducer, dtype);
  return tt_hlo_region(h, op, 2, scalars, 1, combine, &combiner);
}

/* Rank-0 types of `n` accumulators, then of `n` elements; NULL when memory is out. */
static tt_type *region_args(tt_hlo *h, int n, tt_node *const *xs) {
  tt_type *types = tt_hlo_alloc(h, 2 * (size_t)n, sizeof *types);
  for (int i = 0; types && i < n; i++)
    types[i] = types[n + i] = (tt_type){.dtype = xs[i]->type.dtype};
  return types;
}

/* Emits `draft` (its op and attributes) over the arrays with a region made by `body`. */
static void emit_reduction(tt_hlo *h, tt_instr draft, int n, tt_node *const *xs,
                           tt_node *const *inits, tt_body body, void *user, tt_node **results) {
  bool usable = tt_hlo_usable(h, draft.op, xs, n) && tt_hlo_usable(h, draft.op, inits, n);
  tt_type *types = usable ? region_args(h, n, xs) : NULL;
  tt_node **operands = tt_hlo_alloc(h, 2 * (size_t)n, sizeof(tt_node *));
  tt_block *region = types ? tt_hlo_region(h, draft.op, 2 * n, types, n, body, user) : NULL;
  if (!region || !operands) {
    tt_hlo_poison_all(h, results, n);
    return;
  }
  for (int i = 0; i < n; i++) {
    operands[i] = xs[i];
    operands[n + i] = inits[i];
  }
  draft.operands = operands;
  draft.operand_count = 2 * n;
  draft.regions = &region;
  draft.region_count = 1;
  draft.result_count = n;
  tt_hlo_emit_all(h, &draft, types, results);
}

void tt_hlo_reduce_n(tt_hlo *h, int n, tt_node *const *xs, tt_node *const *inits, const int *dims,
                     int count, tt_body body, void *user, tt_node **results) {
  tt_attr attrs[] = {tt_attr_i64s("dimensions", tt_hlo_widen(h, dims, count), count)};
  tt_instr draft = {.op = TT_OPCODE_reduce, .rule = rule_reduce, .attrs = attrs, .attr_count = 1};
  emit_reduction(h, draft, n, xs, inits, body, user, results);
}

tt_node *tt_hlo_reduce(tt_hlo *h, tt_reducer reducer, tt_node *x, const int *dims, int count) {
  TT_NEED(h, reduce, x);
  tt_node *init = tt_hlo_identity(h, reducer, x->type.dtype), *result;
  if (h->error || !count) return h->error ? init : x;
  tt_hlo_op op = reducer_op(reducer, x->type.dtype);
  tt_hlo_reduce_n(h, 1, &x, &init, dims, count, combine, &op, &result);
  return result;
}

tt_node *tt_hlo_reduce_all(tt_hlo *h, tt_reducer reducer, tt_node *x) {
  int dims[TT_MAX_RANK];
  for (int i = 0; i < TT_MAX_RANK; i++) dims[i] = i;
  return tt_hlo_reduce(h, reducer, x, dims, x->type.rank);
}

void tt_hlo_reduce_window_n(tt_hlo *h, int n, tt_node *const *xs, tt_node *const *inits,
                            const tt_window *window, tt_body body, void *user, tt_node **results) {
  if (!tt_hlo_usable(h, TT_OPCODE_reduce_window, xs, n) || n < 1) {
    tt_hlo_poison_all(h, results, n);
    return;
  }
  int rank = xs[0]->type.rank;
  tt_attr attrs[] = {
      tt_attr_i64s("window_dimensions", window->size, rank),
      tt_attr_i64s("window_strides", tt_hlo_filled(h, window->stride, rank, 1), rank),
      tt_attr_i64s("base_dilations", tt_hlo_filled(h, window->base_dilation, rank, 1), rank),
      tt_attr_i64s("window_dilations", tt_hlo_filled(h, window->dilation, rank, 1), rank),
      tt_attr_rows("padding", tt_hlo_filled(h, window->padding, 2 * rank, 0), 2 * rank, 2),
  };
  tt_instr draft = {
      .op = TT_OPCODE_reduce_window, .rule = rule_reduce_window, .attrs = attrs, .attr_count = 5};
  emit_reduction(h, draft, n, xs, inits, body, user, results);
}

tt_node *tt_hlo_reduce_window(tt_hlo *h, tt_reducer reducer, tt_node *x, const tt_window *window) {
  TT_NEED(h, reduce_window, x);
  tt_node *init = tt_hlo_identity(h, reducer, x->type.dtype), *result;
  if (h->error) return init;
  tt_hlo_op op = reducer_op(reducer, x->type.dtype);
  tt_hlo_reduce_window_n(h, 1, &x, &init, window, combine, &op, &result);
  return result;
}

/* Keeps the first value unless the other one is beyond it; a NaN wins over any number. */
static void keep_first(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  tt_cmp direction = *(const bool *)user ? TT_GE : TT_LE;
  tt_node *keep = tt_hlo_compare(h, direction, args[0], args[1]);
  if (tt_is_float(args[0]->type.dtype))
    keep = tt_hlo_or(h, keep, tt_hlo_compare(h, TT_NE, args[0], args[0]));
  results[0] = keep;
}

tt_node *tt_hlo_select_and_scatter(tt_hlo *h, tt_node *x, tt_node *source, const tt_window *window,
                                   bool max) {
  TT_NEED(h, select_and_scatter, x, source);
  int op = TT_OPCODE_select_and_scatter;
  int rank = x->type.rank;
  tt_type scalars[2] = {{.dtype = x->type.dtype}, {.dtype = x->type.dtype}};
  tt_block *regions[2] = {tt_hlo_region(h, op, 2, scalars, 1, keep_first, &max),
                          tt_hlo_reducer_region(h, op, TT_SUM, x->type.dtype)};
  tt_attr attrs[] = {
      tt_attr_i64s("window_dimensions", window->size, rank),
      tt_attr_i64s("window_strides", tt_hlo_filled(h, window->stride, rank, 1), rank),
      tt_attr_rows("padding", tt_hlo_filled(h, window->padding, 2 * rank, 0), 2 * rank, 2),
  };
  tt_node *operands[] = {x, source, tt_hlo_const(h, x->type.dtype, 0)};
  tt_instr draft = {.op = op,
                    .rule = rule_select_and_scatter,
                    .operands = operands,
                    .operand_count = 3,
                    .attrs = attrs,
                    .attr_count = 3,
                    .regions = regions,
                    .region_count = 2};
  return tt_hlo_emit1(h, &draft, x->type);
}
