#include "hlo/internal.h"

/* Takes `dim` for a place of a permutation of 0..rank-1, of which `seen` are taken. */
static bool take_dim(int64_t dim, int rank, uint64_t *seen, int64_t *out) {
  if (dim < 0 || dim >= rank || (*seen >> dim & 1)) return false;
  *seen |= UINT64_C(1) << dim;
  *out = dim;
  return true;
}

/* The dims of one tensor: {two named ones, the spatial ones}. */
static bool split_dims(const tt_attr *numbers, const char *const names[3], int rank, int64_t *dims,
                       tt_why *why) {
  const tt_attr *first = tt_attr_field(numbers, names[0]),
                *second = tt_attr_field(numbers, names[1]);
  const tt_attr *spatial = tt_attr_field(numbers, names[2]);
  uint64_t seen = 0;
  if (!first || !second || !tt_attr_sized(spatial, rank - 2, names[2], why))
    return tt_hlo_bad(why, "incomplete dimension numbers for a tensor of rank %d", rank);
  bool ok = take_dim(first->value, rank, &seen, &dims[0]) &&
            take_dim(second->value, rank, &seen, &dims[1]);
  for (int i = 2; ok && i < rank; i++) ok = take_dim(spatial->values[i - 2], rank, &seen, &dims[i]);
  if (ok) return true;
  return tt_hlo_bad(why, "the dimension numbers of a tensor of rank %d are no permutation", rank);
}

static const char *const input_names[] = {"input_batch_dimension", "input_feature_dimension",
                                          "input_spatial_dimensions"};
static const char *const kernel_names[] = {"kernel_output_feature_dimension",
                                           "kernel_input_feature_dimension",
                                           "kernel_spatial_dimensions"};
static const char *const output_names[] = {"output_batch_dimension", "output_feature_dimension",
                                           "output_spatial_dimensions"};

/* The sizes of the windowed dims of the result. */
static bool spatial_sizes(const tt_instr *in, const int64_t *xd, const int64_t *kd,
                          const int64_t *od, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0), *k = tt_operand_type(in, 1);
  const tt_attr *stride = tt_attr_find(in, "window_strides");
  const tt_attr *padding = tt_attr_find(in, "padding");
  const tt_attr *lhs = tt_attr_find(in, "lhs_dilation"), *rhs = tt_attr_find(in, "rhs_dilation");
  int spatial = x->rank - 2;
  if (!tt_attr_sized(stride, spatial, "window_strides", why) ||
      !tt_attr_sized(padding, 2 * spatial, "padding", why) ||
      !tt_attr_sized(lhs, spatial, "lhs_dilation", why) ||
      !tt_attr_sized(rhs, spatial, "rhs_dilation", why) ||
      !tt_attr_sized(tt_attr_find(in, "window_reversal"), spatial, "window_reversal", why))
    return false;
  for (int i = 0; i < spatial; i++)
    if (!tt_window_count(x->dims[xd[2 + i]], lhs->values[i], padding->values[2 * i],
                         padding->values[2 * i + 1], k->dims[kd[2 + i]], rhs->values[i],
                         stride->values[i], &out->dims[od[2 + i]]))
      return tt_hlo_bad(why, "spatial dimension %d of kernel %s does not fit into %s", i,
                        tt_hlo_show(why, k), tt_hlo_show(why, x));
  return true;
}

static bool rule_convolution(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0), *k = tt_operand_type(in, 1);
  const tt_attr *numbers = tt_attr_find(in, "dimension_numbers");
  const tt_attr *features = tt_attr_find(in, "feature_group_count");
  const tt_attr *batches = tt_attr_find(in, "batch_group_count");
  int64_t xd[TT_MAX_RANK] = {0}, kd[TT_MAX_RANK] = {0}, od[TT_MAX_RANK] = {0};
  if (x->rank < 2 || x->rank != k->rank || x->dtype != k->dtype)
    return tt_hlo_bad(why, "input %s and kernel %s do not fit", tt_hlo_show(why, x),
                      tt_hlo_show(why, k));
  if (!features || !batches || features->value < 1 || batches->value < 1 ||
      (features->value > 1 && batches->value > 1))
    return tt_hlo_bad(why, "group counts must be positive, and one of them 1");
  if (!split_dims(numbers, input_names, x->rank, xd, why) ||
      !split_dims(numbers, kernel_names, x->rank, kd, why) ||
      !split_dims(numbers, output_names, x->rank, od, why))
    return false;
  int64_t outputs = k->dims[kd[0]], groups = features->value;
  if (x->dims[xd[1]] % groups || x->dims[xd[1]] / groups != k->dims[kd[1]] || outputs % groups ||
      x->dims[xd[0]] % batches->value || outputs % batches->value)
    return tt_hlo_bad(why, "input %s and kernel %s do not fit %lld feature and %lld batch groups",
                      tt_hlo_show(why, x), tt_hlo_show(why, k), (long long)groups,
                      (long long)batches->value);
  out->rank = x->rank;
  out->dims[od[0]] = x->dims[xd[0]] / batches->value;
  out->dims[od[1]] = outputs;
  return spatial_sizes(in, xd, kd, od, out, why);
}

/* The three fields of one tensor's dimension numbers. */
static void add_numbers(tt_hlo *h, tt_attr *fields, const char *const names[3], const int *dims,
                        int spatial) {
  int plain[TT_MAX_RANK] = {0};
  for (int i = 0; i < 2 + spatial; i++) plain[i] = dims ? dims[i] : i;
  fields[0] = tt_attr_plain(names[0], plain[0]);
  fields[1] = tt_attr_plain(names[1], plain[1]);
  fields[2] = tt_attr_list(h, names[2], plain + 2, spatial);
}

tt_node *tt_hlo_convolution(tt_hlo *h, tt_node *input, tt_node *kernel, const tt_conv *conv,
                            tt_dtype result) {
  TT_NEED(h, convolution, input, kernel);
  h->convolves = true;
  int spatial = conv->spatial;
  if (spatial < 0 || spatial + 2 != input->type.rank)
    return tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                       "stablehlo.convolution: an input of rank %d with %d spatial dimensions",
                       input->type.rank, spatial);
  int64_t reverse[TT_MAX_RANK] = {0};
  for (int i = 0; conv->reverse && i < spatial; i++) reverse[i] = conv->reverse[i];
  tt_attr fields[9];
  add_numbers(h, fields, input_names, conv->input, spatial);
  add_numbers(h, fields + 3, kernel_names, conv->kernel, spatial);
  add_numbers(h, fields + 6, output_names, conv->output, spatial);
  tt_attr attrs[9] = {
      tt_attr_i64s("window_strides", tt_hlo_filled(h, conv->stride, spatial, 1), spatial),
      tt_attr_rows("padding", tt_hlo_filled(h, conv->padding, 2 * spatial, 0), 2 * spatial, 2),
      tt_attr_i64s("lhs_dilation", tt_hlo_filled(h, conv->lhs_dilation, spatial, 1), spatial),
      tt_attr_i64s("rhs_dilation", tt_hlo_filled(h, conv->rhs_dilation, spatial, 1), spatial),
      tt_attr_values("window_reversal", TT_ATTR_BOOLS, reverse, spatial),
      tt_attr_struct("dimension_numbers", "#stablehlo.conv<raw ", fields, 9),
      tt_attr_i64("feature_group_count", conv->feature_groups ? conv->feature_groups : 1),
      tt_attr_i64("batch_group_count", conv->batch_groups ? conv->batch_groups : 1),
  };
  int count = tt_hlo_add_precision(h, input, attrs, 8);
  return tt_hlo_emit1(h, TT_DRAFT(convolution, attrs, count, input, kernel),
                      (tt_type){.dtype = result});
}
