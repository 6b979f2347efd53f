#include "ops/conv/host.h"

#include "ops/order.h"

#include <assert.h>

enum { MOST_SPATIAL = 3 }; /* PyTorch has no convolution of more */

bool tt_host_convolves(const tt_lower *cx, const tt_geometry *g, const tt_node *x,
                       const tt_node *w) {
  tt_dtype dtype = tt_conv_sum_dtype(x);
  return cx->target->convolves && (dtype == TT_F32 || dtype == TT_F64) &&
         g->spatial <= MOST_SPATIAL && tt_type_numel(&x->type) > 0 && tt_type_numel(&w->type) > 0;
}

/* -- Channels last -- */

/* Which dim of [n, c, in..] is dim d in memory, where that is [n, in.., c] if `last`. */
static int dim_at(int rank, bool last, int d) {
  if (!last || d == 0 || rank < 2) return d;
  return d + 1 < rank ? d + 1 : 1;
}

/* The dims of [n, in.., c] that [n, c, in..] has, and the other way round. */
static void order_of(int rank, bool to_last, int *perm) {
  for (int d = 1; d < rank; d++) perm[d] = to_last ? dim_at(rank, true, d) : d - 1;
  perm[0] = 0;
  if (!to_last) perm[1] = rank - 1;
}

/* As PyTorch has it, which knows no such format of one dim in space. */
static bool lies_last(const tt_node *x) {
  int perm[TT_MAX_RANK];
  order_of(x->type.rank, false, perm);
  return x->type.rank > 3 && tt_hlo_permuted_from(x, perm);
}

static tt_node *exchanged(tt_lower *cx, tt_node *x, bool last, bool to_last) {
  if (!last || x->type.rank < 2) return x;
  int perm[TT_MAX_RANK];
  order_of(x->type.rank, to_last, perm);
  return tt_hlo_transpose(cx->h, x, perm);
}

/* -- Orders -- */

enum { MOST_TENSORS = 3, MOST_RESULTS = 3, MOST_SLOTS = MOST_TENSORS + MOST_RESULTS };

/* A program's call of one order. Each tensor and each result that is made is a storage. */
typedef struct ordering {
  tt_lower *cx;
  bool last;
  tt_order order;
  tt_orders orders;
  tt_order_tensor tensors[MOST_TENSORS];
  tt_order_result results[MOST_RESULTS];
  int64_t bytes[MOST_SLOTS], homes[MOST_SLOTS];
  int64_t strides[MOST_SLOTS][TT_MAX_RANK];
  tt_node *operands[MOST_TENSORS];
  tt_type made[MOST_RESULTS];
  int made_count;
} ordering;

/* The next storage, and how the order sees it. `type` lives as long as the order. */
static int add_slot(ordering *o, const tt_type *type, int64_t home, tt_order_view *view) {
  int slot = o->orders.slot_count++, rank = type->rank;
  int64_t *strides = o->strides[slot], stride = 1;
  if (!tt_type_bytes(type, &o->bytes[slot]))
    tt_hlo_fail(o->cx->h, TT_INVALID_ARGUMENT, "convolution: an operand has too many bytes");
  o->homes[slot] = home;
  assert(rank >= 0 && rank <= TT_MAX_RANK);
  for (int d = rank - 1; d >= 0; d--) {
    int dim = dim_at(rank, o->last, d);
    strides[dim] = stride;
    stride *= type->dims[dim];
  }
  *view = (tt_order_view){.dtype = type->dtype,
                          .rank = rank,
                          .offset_word = -1,
                          .sizes = type->dims,
                          .strides = strides};
  return slot;
}

static tt_arg add_tensor(ordering *o, tt_node *x) {
  if (!x) return (tt_arg){.kind = TT_ARG_NONE};
  int at = o->order.tensor_count++;
  o->tensors[at].slot = add_slot(o, &x->type, -1, &o->tensors[at].view);
  o->operands[at] = exchanged(o->cx, x, o->last, true);
  o->orders.input_count++;
  return (tt_arg){.kind = TT_ARG_TENSOR, .first = at};
}

/* `type`: as PyTorch has it. */
static void add_result(ordering *o, const tt_type *type, bool wanted) {
  tt_order_result *result = &o->results[o->order.result_count++];
  *result = (tt_order_result){.target = -1, .slot = -1};
  if (!wanted) return;
  tt_type lying = *type;
  for (int d = 0; d < type->rank; d++) lying.dims[d] = type->dims[dim_at(type->rank, o->last, d)];
  result->slot = add_slot(o, type, o->made_count, &result->view);
  o->made[o->made_count++] = lying;
}

static tt_arg ints(const int64_t *list, int count) {
  return (tt_arg){.kind = TT_ARG_INTS, .ints = list, .count = count};
}

static tt_arg number(int64_t value, tt_dtype dtype) {
  return (tt_arg){.kind = TT_ARG_INT, .i = value, .dtype = dtype};
}

/* The arguments that both rows have behind their tensors. */
static void add_geometry(const tt_geometry *g, tt_arg *args) {
  args[0] = ints(g->stride, g->spatial);
  args[1] = ints(g->padding, g->spatial);
  args[2] = ints(g->dilation, g->spatial);
  args[3] = number(g->transposed, TT_BOOL);
  args[4] = ints(g->output_padding, g->spatial);
  args[5] = number(g->groups, TT_I64);
}

/* Of one pass. */
static int64_t products(const tt_geometry *g, const tt_type *x, const tt_type *w,
                        const tt_type *y) {
  double places = (double)tt_type_numel(g->transposed ? x : y);
  double all = places * (double)tt_type_numel(w) / (double)w->dims[0];
  return all < 1e18 ? (int64_t)all : (int64_t)1e18;
}

/* results: [made_count]. */
static void emit(ordering *o, tt_node **results) {
  tt_hlo *h = o->cx->h;
  tt_text config = TT_TEXT_INIT;
  o->order.step = TT_NO_STEP;
  o->order.tensors = o->tensors;
  o->order.results = o->results;
  o->orders.all = &o->order;
  o->orders.count = 1;
  o->orders.cost = o->order.cost;
  o->orders.bytes = o->bytes;
  o->orders.homes = o->homes;
  tt_text_printf(&config, "operator = \"%s\", ", o->order.name); /* for whoever reads it */
  tt_orders_print(&o->orders, &config);
  if (config.failed) tt_hlo_fail(h, TT_RESOURCE_EXHAUSTED, "convolution: out of memory");
  tt_hlo_custom_call(h, TT_KERNELS_TARGET, config.data, o->order.tensor_count, o->operands,
                     o->made_count, o->made, results);
  tt_text_deinit(&config);
}

tt_node *tt_host_convolution(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *w,
                             tt_node *bias, const int64_t *out) {
  ordering o = {.cx = cx, .last = lies_last(x) || lies_last(w)};
  tt_type type = x->type;
  type.dims[1] = g->transposed ? w->type.dims[1] * g->groups : w->type.dims[0];
  for (int d = 0; d < g->spatial; d++) type.dims[2 + d] = out[d];
  if (bias) bias = tt_cast(cx, bias, x->type.dtype);
  tt_arg args[] = {add_tensor(&o, x), add_tensor(&o, w), add_tensor(&o, bias), [8] = {0}};
  add_geometry(g, args + 3);
  add_result(&o, &type, true);
  o.order.name = "aten::convolution_overrideable";
  o.order.args = args;
  o.order.arg_count = 9;
  o.order.cost = products(g, &x->type, &w->type, &type);
  tt_node *y = NULL;
  emit(&o, &y);
  return exchanged(cx, y, o.last, false);
}

void tt_host_convolution_backward(tt_lower *cx, const tt_geometry *g, tt_node *dy, tt_node *x,
                                  tt_node *w, const bool *wanted, tt_node **out) {
  ordering o = {.cx = cx, .last = lies_last(x) || lies_last(w)};
  int64_t mask[] = {wanted[0], wanted[1], wanted[2]};
  tt_type bias = tt_type_make(dy->type.dtype, 1, &dy->type.dims[1]);
  const tt_type *types[] = {&x->type, &w->type, &bias};
  tt_arg args[] = {add_tensor(&o, dy), add_tensor(&o, x), add_tensor(&o, w), [9] = ints(mask, 3)};
  add_geometry(g, args + 3);
  for (int i = 0; i < 3; i++) add_result(&o, types[i], wanted[i]);
  o.order.name = "aten::convolution_backward_overrideable";
  o.order.args = args;
  o.order.arg_count = 10;
  o.order.cost = (mask[0] + mask[1]) * products(g, &x->type, &w->type, &dy->type);
  tt_node *results[MOST_RESULTS];
  for (int i = 0; i < 3; i++) out[i] = NULL;
  if (!o.made_count) return;
  emit(&o, results);
  for (int i = 0, next = 0; i < 3; i++)
    if (wanted[i]) out[i] = exchanged(cx, results[next++], o.last, false);
}
