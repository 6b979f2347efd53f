/* Resampling to another size, with and without antialiasing. Every kind is a linear map along
 * each spatial dim; its gradient is the map turned around. Source positions are computed in the
 * precision that PyTorch uses, so that the same neighbours are read. */
#include "ops/image/taps.h"

#include <math.h>

enum { NEAREST, EXACT, LINEAR, CUBIC, LINEAR_AA, CUBIC_AA, LANCZOS_AA };

typedef struct axis {
  int kind;
  bool align, wide; /* wide: positions in f64, else f32 */
  int64_t in, out;
  double given; /* the user's scale factor, or 0 */
} axis;

/* Rounds an intermediate result as PyTorch's arithmetic would. */
static double rounded(const axis *a, double x) { return a->wide ? x : (double)(float)x; }

static double scale_of(const axis *a) {
  if (a->align) return a->out > 1 ? rounded(a, (double)(a->in - 1) / (double)(a->out - 1)) : 0;
  return rounded(a, a->given > 0 ? 1 / a->given : (double)a->in / (double)a->out);
}

static int64_t clip(int64_t i, int64_t size) { return i < 0 ? 0 : i < size ? i : size - 1; }

static void add_nearest(const axis *a, tt_map *map) {
  float scale = (float)(a->given > 0 ? 1 / a->given : (double)((float)a->in / (float)a->out));
  for (int64_t o = 0; o < a->out; o++) {
    float at = ((float)o + (a->kind == EXACT ? 0.5f : 0.0f)) * scale;
    int64_t from = (int64_t)floorf(at);
    if (a->kind == NEAREST && a->out == a->in) from = o;
    if (a->kind == NEAREST && a->out == 2 * a->in) from = o / 2;
    tt_map_add(map, from < a->in ? from : a->in - 1, o, 0, 1);
  }
}

/* The position that result element `o` is read at, as floor and fraction. */
static int64_t source(const axis *a, double scale, int64_t o, double *fraction) {
  double at;
  if (a->align) {
    at = rounded(a, scale * (double)o);
  } else {
    at = rounded(a, rounded(a, scale * ((double)o + 0.5)) - 0.5);
    if (at < 0 && a->kind == LINEAR) at = 0;
  }
  int64_t from = (int64_t)floor(at);
  if (from > a->in - 1) from = a->in - 1;
  double rest = rounded(a, at - (double)from);
  *fraction = rest < 0 ? 0 : rest > 1 ? 1 : rest;
  return from;
}

static void add_linear(const axis *a, tt_map *map) {
  double scale = scale_of(a), t;
  for (int64_t o = 0; o < a->out; o++) {
    int64_t from = o;
    t = 0;
    if (a->in != a->out) from = source(a, scale, o, &t);
    tt_map_add(map, from, o, 0, rounded(a, 1 - t));
    tt_map_add(map, clip(from + 1, a->in), o, 1, t);
  }
}

/* Keys' cubic kernel at distance x. */
static double cubic(double x, double a) {
  x = fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

static void add_cubic(const axis *a, tt_map *map) {
  double scale = scale_of(a), t;
  for (int64_t o = 0; o < a->out; o++) {
    int64_t from = source(a, scale, o, &t);
    for (int j = -1; j <= 2; j++) {
      tt_map_add(map, clip(from + j, a->in), o, j + 1, rounded(a, cubic(t - j, -0.75)));
    }
  }
}

static double sinc(double x) {
  x *= 3.14159265358979323846;
  return x == 0 ? 1 : sin(x) / x;
}

static double antialias(int kind, double x) {
  if (kind == CUBIC_AA) return cubic(x, -0.5);
  if (kind == LANCZOS_AA) return fabs(x) < 3 ? sinc(x) * sinc(x / 3) : 0;
  return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static double reach_of(const axis *a) {
  double scale = scale_of(a), half = a->kind == LINEAR_AA ? 1 : a->kind == CUBIC_AA ? 2 : 3;
  return rounded(a, scale >= 1 ? half * scale : half);
}

static void add_antialiased(const axis *a, tt_map *map) {
  double scale = scale_of(a), reach = reach_of(a), shrink = scale >= 1 ? rounded(a, 1 / scale) : 1;
  for (int64_t o = 0; o < a->out; o++) {
    double center = rounded(a, scale * ((double)o + 0.5)), total = 0;
    int64_t start = (int64_t)rounded(a, center - reach + 0.5);
    int64_t stop = (int64_t)rounded(a, center + reach + 0.5);
    if (start < 0) start = 0;
    if (stop > a->in) stop = a->in;
    for (int64_t i = start; i < stop; i++) {
      total += antialias(a->kind, ((double)i - center + 0.5) * shrink);
    }
    for (int64_t i = start; i < stop; i++) {
      double weight = antialias(a->kind, ((double)i - center + 0.5) * shrink);
      tt_map_add(map, i, o, i - start, rounded(a, total != 0 ? weight / total : weight));
    }
  }
}

static tt_map resample(tt_lower *cx, const axis *a) {
  double taps = 4;
  if (a->kind >= LINEAR_AA && a->out > 0) taps = 2 * reach_of(a) + 4;
  double terms = taps * (double)a->out;
  tt_map map = tt_map_make(cx, a->in, a->out, terms < 1e15 ? (int64_t)terms : -1);
  if (!map.capacity || a->in < 1) return map;
  if (a->kind <= EXACT) add_nearest(a, &map);
  if (a->kind == LINEAR) add_linear(a, &map);
  if (a->kind == CUBIC) add_cubic(a, &map);
  if (a->kind >= LINEAR_AA) add_antialiased(a, &map);
  return map;
}

/* Bytes are rounded half up and saturated after each dim. */
static tt_node *as_byte(tt_lower *cx, tt_node *x) {
  x = tt_hlo_floor(cx->h, tt_plus(cx, x, 0.5));
  return tt_hlo_clamp(cx->h, tt_like(cx, x, 0), x, tt_like(cx, x, 255));
}

/* Bytes are weighted by 16-bit fixed-point numbers, as precise as the largest weight allows. */
static void quantize(tt_map *map) {
  double largest = 0, unit = 1;
  for (int64_t i = 0; i < map->count; i++) largest = fmax(largest, map->terms[i].weight);
  for (int bits = 0; bits < 22 && floor(0.5 + largest * unit * 2) < 32768; bits++) unit *= 2;
  for (int64_t i = 0; i < map->count; i++) {
    map->terms[i].weight = round(map->terms[i].weight * unit) / unit;
  }
}

/* `backward` maps from the result's spatial sizes, argument 1, to those at the end of argument 2.
 * param: kind * 10 + spatial dims */
static void lower_resample(tt_lower *cx, bool backward) {
  int kind = cx->row->param / 10, spatial = cx->row->param % 10, count = 0;
  tt_node *input = tt_in(cx, 0), *x = input;
  int next = backward ? 3 : 2, lead = input->type.rank - spatial;
  const int64_t *out = tt_ints(cx, 1, &count), *in = NULL;
  int in_count = backward ? 0 : input->type.rank;
  in = backward ? tt_ints(cx, 2, &in_count) : input->type.dims;
  if (lead < 0 || count != spatial || in_count != input->type.rank) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "upsample: expected sizes of %d spatial dims", spatial);
    return;
  }
  bool align = kind >= LINEAR && tt_bool(cx, next++);
  bool computes = kind > EXACT || backward;
  if (computes && !tt_is_complex(x->type.dtype)) {
    x = tt_cast(cx, x, input->type.dtype == TT_F64 ? TT_F64 : TT_F32);
  }
  for (int d = spatial - 1; d >= 0; d--) {
    axis a = {.kind = kind,
              .align = align,
              .wide = input->type.dtype == TT_F64,
              .in = in[lead + d],
              .out = out[d],
              .given = tt_has(cx, next + d) ? tt_float(cx, next + d) : 0};
    tt_map map = resample(cx, &a);
    if (input->type.dtype == TT_U8) quantize(&map);
    if (backward) tt_map_transpose(&map);
    x = tt_map_apply(cx, x, lead + d, &map);
    if (computes && tt_is_integer(input->type.dtype)) x = as_byte(cx, x);
  }
  tt_out_as(cx, 0, tt_cast(cx, x, input->type.dtype));
}

/* self, output_size, align_corners (not for nearest), scales.. */
void tt_lower_upsample(tt_lower *cx) { lower_resample(cx, false); }

/* grad_output, output_size, input_size, align_corners (not for nearest), scales.. */
void tt_lower_upsample_backward(tt_lower *cx) { lower_resample(cx, true); }
