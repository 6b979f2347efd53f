#include "ops/conv/host.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

enum { MOST_SPATIAL = 3 }; /* PyTorch has no convolution of more */

bool tt_host_convolves(const tt_lower *cx, const tt_geometry *g, const tt_node *x,
                       const tt_node *w) {
  tt_dtype dtype = tt_conv_sum_dtype(x);
  return cx->target->convolves && (dtype == TT_F32 || dtype == TT_F64) &&
         g->spatial <= MOST_SPATIAL && tt_type_numel(&x->type) > 0 && tt_type_numel(&w->type) > 0;
}

/* The host has f16 by loops that are slow, so it gets f32 there. */
static tt_node *as_host_has_it(tt_lower *cx, tt_node *x) {
  return x->type.dtype == TT_BF16 ? x : tt_cast(cx, x, tt_conv_sum_dtype(x));
}

/* -- The config -- */

typedef struct config {
  char text[1024];
  size_t size;
} config;

__attribute__((format(printf, 2, 3))) static void put(config *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int wrote = vsnprintf(c->text + c->size, sizeof c->text - c->size, format, args);
  va_end(args);
  c->size += (size_t)wrote;
  assert(c->size < sizeof c->text); /* 18 numbers of 20 digits at most */
}

static void put_int(config *c, const char *name, int64_t value) {
  put(c, "%s%s = %lld : i64", c->size ? ", " : "", name, (long long)value);
}

static void put_ints(config *c, const char *name, const int64_t *values, int count) {
  put(c, "%s%s = array<i64", c->size ? ", " : "", name);
  for (int i = 0; i < count; i++) put(c, "%s %lld", i ? "," : ":", (long long)values[i]);
  put(c, ">");
}

static config config_of(const tt_geometry *g, bool last) {
  config c = {.size = 0};
  put_ints(&c, "stride", g->stride, g->spatial);
  put_ints(&c, "padding", g->padding, g->spatial);
  put_ints(&c, "dilation", g->dilation, g->spatial);
  put_ints(&c, "output_padding", g->output_padding, g->spatial);
  put_int(&c, "groups", g->groups);
  if (g->transposed) put_int(&c, "transposed", 1);
  if (last) put_int(&c, "last", 1);
  return c;
}

/* -- Channels last -- */

/* The dims of [n, in.., c] that [n, c, in..] has, and the other way round. */
static void order_of(int rank, bool to_last, int *perm) {
  for (int d = 1; d < rank; d++) perm[d] = to_last ? (d + 1 < rank ? d + 1 : 1) : d - 1;
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
  if (!last) return x;
  int perm[TT_MAX_RANK];
  order_of(x->type.rank, to_last, perm);
  return tt_hlo_transpose(cx->h, x, perm);
}

static tt_type lying(tt_type type, bool last) {
  tt_type out = type;
  int perm[TT_MAX_RANK];
  order_of(type.rank, true, perm);
  for (int d = 0; last && d < type.rank; d++) out.dims[d] = type.dims[perm[d]];
  return out;
}

/* -- Calls -- */

tt_node *tt_host_convolution(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *w,
                             tt_node *bias, const int64_t *out) {
  bool last = lies_last(x) || lies_last(w);
  tt_node *xs[] = {exchanged(cx, as_host_has_it(cx, x), last, true),
                   exchanged(cx, as_host_has_it(cx, w), last, true),
                   bias ? as_host_has_it(cx, bias) : NULL};
  tt_node *y;
  tt_type type = x->type;
  type.dtype = xs[0]->type.dtype;
  type.dims[1] = g->transposed ? w->type.dims[1] * g->groups : w->type.dims[0];
  for (int d = 0; d < g->spatial; d++) type.dims[2 + d] = out[d];
  config c = config_of(g, last);
  type = lying(type, last);
  tt_hlo_custom_call(cx->h, "torch_tpu.convolution", c.text, bias ? 3 : 2, xs, 1, &type, &y);
  return exchanged(cx, y, last, false);
}

void tt_host_convolution_backward(tt_lower *cx, const tt_geometry *g, tt_node *dy, tt_node *x,
                                  tt_node *w, const bool *wanted, tt_node **out) {
  static const char *const names[] = {"input", "weight", "bias"};
  bool last = lies_last(x) || lies_last(w);
  tt_node *xs[] = {exchanged(cx, as_host_has_it(cx, dy), last, true),
                   exchanged(cx, as_host_has_it(cx, x), last, true),
                   exchanged(cx, as_host_has_it(cx, w), last, true)};
  tt_type types[] = {xs[1]->type, xs[2]->type,
                     tt_type_make(xs[0]->type.dtype, 1, &dy->type.dims[1])};
  tt_type asked[3];
  tt_node *results[3];
  int count = 0;
  config c = config_of(g, last);
  for (int i = 0; i < 3; i++) {
    if (!wanted[i]) continue;
    put_int(&c, names[i], 1);
    asked[count++] = types[i];
  }
  if (count)
    tt_hlo_custom_call(cx->h, "torch_tpu.convolution_backward", c.text, 3, xs, count, asked,
                       results);
  for (int i = 2; i >= 0; i--) {
    out[i] = wanted[i] ? results[--count] : NULL;
    if (out[i] && i < 2) out[i] = exchanged(cx, out[i], last, false);
  }
}
