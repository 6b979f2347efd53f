/* A layer's steps in one direction, as a loop: everything behind the product of the whole input. */
#include "ops/rnn/cell.h"

#include <assert.h>

typedef struct recurrence {
  tt_lower *cx;
  tt_cell kind;
  bool reverse, saves;
  int64_t steps, size;
  tt_dtype dtype, computed; /* of the states; of what is computed in between */
  tt_node *gates;           /* [steps, n, columns]: products of the input, with their bias */
  tt_node *weight;          /* [columns, size] */
  tt_node *bias;            /* [n, columns], computed; or NULL */
  tt_node *lengths;         /* [n], I32: how many steps each has; NULL: all have all */
  /* Of backward: what the steps returned, their states before, and the gradient of these. */
  tt_node *out, *saved, *hidden_before, *cell_before, *grad;
} recurrence;

static bool has_cell(const recurrence *r) { return r->kind == TT_CELL_LSTM; }

/* Of a step's saved rows: an LSTM's end by its cell. */
static int saved_parts(const recurrence *r) { return tt_cell_saved(r->kind) + has_cell(r); }

static tt_node *from_end(const recurrence *r, tt_node *n) {
  return tt_hlo_subtract(r->cx->h, tt_hlo_const_i(r->cx->h, TT_I32, r->steps - 1), n);
}

/* The rows of step `at`, in the dtype computed in; NULL of NULL. */
static tt_node *take(const recurrence *r, tt_node *all, tt_node *at) {
  if (!all) return NULL;
  tt_node *zero = tt_hlo_const_i(r->cx->h, TT_I32, 0);
  const int64_t *dims = all->type.dims;
  tt_node *one = tt_hlo_dynamic_slice(r->cx->h, all, (tt_node *[]){at, zero, zero},
                                      (int64_t[]){1, dims[1], dims[2]});
  return tt_cast(r->cx, tt_hlo_reshape(r->cx->h, one, 2, dims + 1), r->computed);
}

static tt_node *put(const recurrence *r, tt_node *all, tt_node *rows, tt_node *at) {
  assert(all);
  tt_node *zero = tt_hlo_const_i(r->cx->h, TT_I32, 0);
  rows = tt_unsqueeze(r->cx, tt_cast(r->cx, rows, all->type.dtype), 0);
  return tt_hlo_dynamic_update_slice(r->cx->h, all, rows, (tt_node *[]){at, zero, zero});
}

/* For as many columns of each step. */
static tt_node *room(const recurrence *r, int64_t columns) {
  tt_type type = r->gates->type;
  type.dtype = r->dtype;
  type.dims[2] = columns;
  return tt_hlo_zeros(r->cx->h, &type);
}

/* `now` of those that have step `at`, and what the others had. */
static tt_node *of_those(const recurrence *r, tt_node *at, tt_node *now, tt_node *had) {
  if (!r->lengths) return now;
  tt_hlo *h = r->cx->h;
  at = tt_along(r->cx, tt_unsqueeze(r->cx, at, 0), 0, &r->lengths->type);
  tt_node *has = tt_hlo_compare(h, TT_LT, at, r->lengths);
  return tt_hlo_select(h, tt_along(r->cx, has, 0, &now->type), now, had);
}

/* -- Forward: a number, the hidden state, the cell?, all hidden states, what is saved? -- */

static tt_node *hidden_product(const recurrence *r, tt_node *hidden) {
  tt_node *y = tt_contract(r->cx, hidden, r->weight, 0, 1, 1, r->computed);
  if (r->bias) y = tt_hlo_add(r->cx->h, y, r->bias);
  return tt_cast(r->cx, tt_cast(r->cx, y, r->dtype), r->computed); /* rounded, as addmm is */
}

static void step_on(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const recurrence *r = user;
  tt_lower *cx = r->cx;
  int n = 1;
  tt_node *at = r->reverse ? from_end(r, args[0]) : args[0];
  tt_node *hidden = args[n++], *cell = has_cell(r) ? args[n++] : NULL;
  tt_step step =
      tt_cell_step(cx, r->kind, take(r, r->gates, at), hidden_product(r, hidden),
                   tt_cast(cx, hidden, r->computed), cell ? tt_cast(cx, cell, r->computed) : NULL);
  tt_node *now = of_those(r, at, tt_cast(cx, step.hidden, r->dtype), hidden);
  n = 1;
  results[n++] = now;
  if (cell) results[n++] = cell = of_those(r, at, tt_cast(cx, step.cell, r->dtype), cell);
  results[n] = put(r, args[n], now, at);
  n++;
  if (!r->saves) return;
  tt_node *parts[TT_MOST_SAVED + 1] = {NULL};
  for (int k = 0; k < tt_cell_saved(r->kind); k++) parts[k] = tt_cast(cx, step.saved[k], r->dtype);
  parts[tt_cell_saved(r->kind)] = cell;
  results[n] = put(r, args[n], tt_hlo_concatenate(h, parts, saved_parts(r), 1), at);
}

static void out_none(tt_lower *cx, int k) {
  const tt_type *type = tt_meta_type(cx, k);
  if (type) tt_out(cx, k, tt_hlo_zeros(cx->h, type));
}

/* What forward and backward are told alike: the arguments from `states` on are hidden [n, size],
 * cell?, and from `last` on lengths? [n], kind, reverse. False: their ranks are wrong. */
static bool init_recurrence(recurrence *r, tt_lower *cx, tt_node *gates, int states, int last) {
  tt_node *hidden = tt_in(cx, states);
  *r = (recurrence){.cx = cx, .gates = gates};
  if (!tt_need_rank(cx, gates, 3) || !tt_need_rank(cx, hidden, 2)) return false;
  r->kind = (tt_cell)tt_int(cx, last + 1);
  r->reverse = tt_bool(cx, last + 2);
  r->steps = gates->type.dims[0];
  r->size = hidden->type.dims[1];
  r->dtype = hidden->type.dtype;
  r->computed = tt_compute_dtype(r->dtype);
  if (tt_has(cx, last)) r->lengths = tt_in_as(cx, last, TT_I32);
  return true;
}

/* gates [steps, n, columns], weight [columns, size], bias?, hidden, cell?, lengths?, kind, reverse,
 * saves -> hidden states [steps, n, size], the last one, the last cell, rows for backward
 * [steps, n, parts * size] */
void tt_lower_recurrence(tt_lower *cx) {
  recurrence r;
  if (!init_recurrence(&r, cx, tt_in(cx, 0), 3, 5)) return;
  r.weight = tt_in(cx, 1);
  r.saves = tt_bool(cx, 8) && saved_parts(&r);
  if (tt_has(cx, 2)) {
    tt_type rows = {.rank = 2, .dims = {r.gates->type.dims[1], r.gates->type.dims[2]}};
    r.bias = tt_along(cx, tt_in_as(cx, 2, r.computed), 1, &rows);
  }
  tt_node *state[5] = {tt_hlo_const_i(cx->h, TT_I32, 0), tt_in(cx, 3)}, *end[5] = {NULL};
  int n = 2;
  if (has_cell(&r)) state[n++] = tt_in(cx, 4);
  state[n++] = room(&r, r.size);
  if (r.saves) state[n++] = room(&r, saved_parts(&r) * r.size);
  tt_hlo_count_up(cx->h, r.steps, n, state, step_on, &r, end);
  n = 1;
  tt_out(cx, 1, end[n++]);
  if (has_cell(&r)) tt_out(cx, 2, end[n++]);
  else out_none(cx, 2);
  tt_out(cx, 0, end[n++]);
  if (r.saves) tt_out(cx, 3, end[n]);
  else out_none(cx, 3);
}

/* -- Backward: a number, gradients of the hidden state, of the cell?, of the input's products, and
 * of the hidden states' where these are others -- */

static bool has_other_products(const recurrence *r) { return r->kind == TT_CELL_GRU; }

static tt_node *grad_before(const recurrence *r, tt_node *at, const tt_step_grads *grads,
                            tt_node *grad) {
  tt_node *by_products =
      tt_contract(r->cx, tt_cast(r->cx, grads->y, r->dtype), r->weight, 0, 1, 0, r->computed);
  if (!grads->hidden && !r->lengths) return by_products;
  tt_node *direct = grads->hidden ? grads->hidden : tt_hlo_zeros(r->cx->h, &grad->type);
  return tt_hlo_add(r->cx->h, by_products, of_those(r, at, direct, grad));
}

static void step_back(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const recurrence *r = user;
  tt_lower *cx = r->cx;
  int n = 1;
  tt_node *at = r->reverse ? args[0] : from_end(r, args[0]);
  tt_node *hidden = args[n++], *cell = has_cell(r) ? args[n++] : NULL;
  if (r->grad) hidden = tt_hlo_add(h, hidden, take(r, r->grad, at));
  tt_node *saved = take(r, r->saved, at);
  tt_step step = {.hidden = take(r, r->out, at)};
  tt_step before = {take(r, r->hidden_before, at), take(r, r->cell_before, at), {NULL}};
  for (int k = 0; k < tt_cell_saved(r->kind); k++)
    step.saved[k] = tt_cell_gate(cx, saved, k, r->size);
  if (cell) step.cell = tt_cell_gate(cx, saved, tt_cell_saved(r->kind), r->size);
  tt_step_grads grads = tt_cell_step_backward(cx, r->kind, &step, &before, hidden, cell);
  tt_node *none = tt_hlo_zeros(h, &grads.x->type);
  grads.x = of_those(r, at, grads.x, none);
  grads.y = of_those(r, at, grads.y, none);
  n = 1;
  results[n++] = grad_before(r, at, &grads, hidden);
  if (cell) results[n++] = of_those(r, at, grads.cell, cell);
  results[n] = put(r, args[n], grads.x, at);
  n++;
  if (has_other_products(r)) results[n] = put(r, args[n], grads.y, at);
}

/* The states before each step: `first`, and all but the last of the states. */
static tt_node *shifted(const recurrence *r, tt_node *first, tt_node *states) {
  const int64_t from = r->reverse ? 1 : 0;
  first = tt_unsqueeze(r->cx, first, 0);
  states = tt_hlo_slice_dim(r->cx->h, states, 0, from, from + r->steps - 1, 1);
  tt_node *parts[2] = {r->reverse ? states : first, r->reverse ? first : states};
  return tt_hlo_concatenate(r->cx->h, parts, 2, 0);
}

/* Of the weight: all steps' rows are one product. */
static tt_node *grad_of_weight(const recurrence *r, tt_node *products) {
  tt_node *states = tt_merge_dim(r->cx, r->hidden_before, 0);
  return tt_contract(r->cx, tt_merge_dim(r->cx, products, 0), states, 0, 0, 0, r->dtype);
}

/* grad of the hidden states?, of the last one?, of the last cell?, weight, hidden, cell?, hidden
 * states, saved, lengths?, kind, reverse -> grad_gates, grad_weight, grad_bias,
 * grad_hidden, grad_cell */
void tt_lower_recurrence_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  recurrence r;
  tt_node *out = tt_in(cx, 6), *hidden = tt_in(cx, 4);
  if (!init_recurrence(&r, cx, out, 4, 8)) return;
  r.weight = tt_in(cx, 3);
  r.out = out;
  r.grad = tt_has(cx, 0) ? tt_in(cx, 0) : NULL;
  r.hidden_before = shifted(&r, hidden, out);
  r.saved = saved_parts(&r) ? tt_in(cx, 7) : NULL;
  tt_node *state[5] = {tt_hlo_const_i(h, TT_I32, 0), tt_cell_grad(cx, 1, hidden, r.computed)};
  tt_node *end[5] = {NULL};
  int n = 2;
  if (has_cell(&r)) {
    r.cell_before =
        shifted(&r, tt_in(cx, 5), tt_cell_gate(cx, r.saved, tt_cell_saved(r.kind), r.size));
    state[n++] = tt_cell_grad(cx, 2, hidden, r.computed);
  }
  state[n] = room(&r, r.weight->type.dims[0]);
  if (has_other_products(&r)) state[n + 1] = state[n];
  tt_hlo_count_up(h, r.steps, n + 1 + has_other_products(&r), state, step_back, &r, end);
  tt_node *products = end[n + has_other_products(&r)];
  tt_out(cx, 0, end[n]);
  tt_out(cx, 1, grad_of_weight(&r, products));
  tt_node *sum = tt_sum(cx, tt_cast(cx, products, r.computed), (const int[]){0, 1}, 2);
  tt_out(cx, 2, tt_cast(cx, sum, r.dtype));
  tt_out(cx, 3, tt_cast(cx, end[1], r.dtype));
  if (has_cell(&r)) tt_out(cx, 4, tt_cast(cx, end[2], r.dtype));
  else out_none(cx, 4);
}
