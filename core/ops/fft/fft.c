/* Fourier transforms. XLA transforms the last dims, three at most, so others are moved there. */
#include "ops/lower.h"

#include <math.h>

enum { DIMS_AT_ONCE = 3 };

typedef struct axes {
  int list[TT_MAX_RANK]; /* in the order of the call; the last one is halved in real transforms */
  int count;
} axes;

static axes transformed_axes(tt_lower *cx, const tt_node *x) {
  axes a = {.count = 0};
  int count;
  const int64_t *dims = tt_ints(cx, 1, &count);
  for (int i = 0; i < count && i < TT_MAX_RANK; i++) {
    int64_t dim = dims[i] < 0 ? dims[i] + x->type.rank : dims[i];
    if (dim < 0 || dim >= x->type.rank) {
      tt_hlo_fail(cx->h, TT_OUT_OF_RANGE, "%s: dimension %lld of %d", cx->row->name,
                  (long long)dims[i], x->type.rank);
      break;
    }
    a.list[a.count++] = (int)dim;
  }
  return a;
}

/* PyTorch's normalisation: 0 none, 1 by the root of the number of elements, 2 by their number. */
static tt_node *normalised(tt_lower *cx, tt_node *x, double elements, bool inverted) {
  int64_t how = tt_int(cx, 2);
  double scale = how == 0 ? 1 : how == 1 ? 1 / sqrt(elements) : 1 / elements;
  if (inverted) scale *= elements; /* XLA's inverse transforms divide by the number */
  return scale == 1 ? x : tt_hlo_multiply(cx->h, x, tt_like(cx, x, scale));
}

/* Transforms the listed dims, which become the last ones on the way. */
static tt_node *transform(tt_lower *cx, tt_node *x, tt_fft kind, const int *dims, int count,
                          int64_t last_length) {
  int perm[TT_MAX_RANK], back[TT_MAX_RANK], rank = x->type.rank, at = 0;
  int64_t lengths[DIMS_AT_ONCE];
  for (int i = 0; i < rank; i++) {
    bool moved = false;
    for (int k = 0; k < count; k++) moved |= dims[k] == i;
    if (!moved) perm[at++] = i;
  }
  for (int k = 0; k < count && at < rank; k++) perm[at++] = dims[k];
  if (at != rank)
    return tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "%s: dims must be unique", cx->row->name);
  for (int i = 0; i < rank; i++) back[perm[i]] = i;
  for (int k = 0; k < count; k++) lengths[k] = x->type.dims[dims[k]];
  if (last_length > 0) lengths[count - 1] = last_length;
  x = tt_hlo_fft(cx->h, tt_hlo_transpose(cx->h, x, perm), kind, lengths, count);
  return tt_hlo_transpose(cx->h, x, back);
}

/* Complex transforms of the first `count` axes, as many at once as XLA takes. */
static tt_node *complex_transform(tt_lower *cx, tt_node *x, tt_fft kind, const axes *a, int count) {
  for (int k = 0; k < count && !tt_hlo_failed(cx->h); k += DIMS_AT_ONCE) {
    int some = count - k < DIMS_AT_ONCE ? count - k : DIMS_AT_ONCE;
    x = transform(cx, x, kind, a->list + k, some, 0);
  }
  return x;
}

static double elements_of(const tt_type *type, const axes *a) {
  double elements = 1;
  for (int k = 0; k < a->count; k++) elements *= (double)type->dims[a->list[k]];
  return elements;
}

/* True when there is nothing to transform: then result 0 was stated. */
static bool trivial(tt_lower *cx, tt_node *x, const axes *a) {
  const tt_type *type = tt_meta_type(cx, 0);
  if (tt_hlo_failed(cx->h)) return true;
  if (tt_type_numel(type) > 0 && tt_type_numel(&x->type) > 0 && a->count > 0) return false;
  tt_out_as(cx, 0, tt_type_numel(type) == 0 ? tt_hlo_zeros(cx->h, type) : x);
  return true;
}

/* (x, dim, normalization, forward) */
void tt_lower_fft_c2c(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  axes a = transformed_axes(cx, x);
  if (trivial(cx, x, &a)) return;
  bool forward = tt_bool(cx, 3);
  tt_node *y = complex_transform(cx, x, forward ? TT_FFT : TT_IFFT, &a, a.count);
  tt_out_as(cx, 0, normalised(cx, y, elements_of(&x->type, &a), !forward));
}

/* (x, dim, normalization, onesided) */
void tt_lower_fft_r2c(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *y;
  axes a = transformed_axes(cx, x);
  if (trivial(cx, x, &a)) return;
  if (tt_bool(cx, 3)) {
    y = transform(cx, x, TT_RFFT, &a.list[a.count - 1], 1, 0);
    y = complex_transform(cx, y, TT_FFT, &a, a.count - 1);
  } else {
    y = complex_transform(cx, tt_cast(cx, x, tt_dtype_complex(x->type.dtype)), TT_FFT, &a, a.count);
  }
  tt_out_as(cx, 0, normalised(cx, y, elements_of(&x->type, &a), false));
}

/* (x, dim, normalization, last_dim_size) */
void tt_lower_fft_c2r(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  axes a = transformed_axes(cx, x);
  if (trivial(cx, x, &a)) return;
  int last = a.list[a.count - 1];
  int64_t length = tt_int(cx, 3), high[TT_MAX_RANK] = {0}, low[TT_MAX_RANK] = {0};
  tt_node *y = complex_transform(cx, x, TT_IFFT, &a, a.count - 1);
  high[last] = length / 2 + 1 - x->type.dims[last];
  y = tt_hlo_pad(cx->h, y, tt_like(cx, y, 0), low, high, NULL);
  y = transform(cx, y, TT_IRFFT, &last, 1, length);
  tt_out_as(cx, 0, normalised(cx, y, elements_of(&y->type, &a), true));
}
