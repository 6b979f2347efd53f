#include "hlo/internal.h"

/* -- Rules -- */

/* The size of an index vector. */
static int64_t vector_size(const tt_type *indices, int64_t dim) {
  return dim < indices->rank ? indices->dims[dim] : 1;
}

/* The dims of `indices` without the index vector's, in order; how many. */
static int index_dims(const tt_type *indices, int64_t vector, int64_t *dims) {
  int count = 0;
  for (int i = 0; i < indices->rank; i++)
    if (i != vector) dims[count++] = indices->dims[i];
  return count;
}

/* What gather's and scatter's dimension numbers have in common. */
typedef struct tt_numbers {
  const tt_attr *window, *gone, *operand_batch, *index_batch, *map;
  int64_t vector;
} tt_numbers;

static bool check_numbers(const tt_numbers *n, const tt_type *x, const tt_type *indices,
                          tt_why *why) {
  if (!tt_attr_dims(n->gone, x->rank, "collapsed or inserted dimensions", why) ||
      !tt_attr_dims(n->operand_batch, x->rank, "operand batch dimensions", why) ||
      !tt_attr_dims(n->index_batch, indices->rank, "index batch dimensions", why) ||
      !tt_attr_dims(n->map, x->rank, "the index map", why))
    return false;
  if (n->vector < 0 || n->vector > indices->rank ||
      vector_size(indices, n->vector) != n->map->count)
    return tt_hlo_bad(why, "%s along dimension %lld does not hold vectors of %d indices",
                      tt_hlo_show(why, indices), (long long)n->vector, n->map->count);
  if (n->operand_batch->count != n->index_batch->count)
    return tt_hlo_bad(why, "%d and %d batch dimensions", n->operand_batch->count,
                      n->index_batch->count);
  for (int i = 0; i < n->operand_batch->count; i++) {
    int64_t a = n->operand_batch->values[i], b = n->index_batch->values[i];
    if (b == n->vector || x->dims[a] != indices->dims[b] || tt_attr_has(n->gone, a) ||
        tt_attr_has(n->map, a))
      return tt_hlo_bad(why, "batch dimension %d of %s and %s does not fit", i, tt_hlo_show(why, x),
                        tt_hlo_show(why, indices));
  }
  if (n->window->count + n->gone->count + n->operand_batch->count != x->rank)
    return tt_hlo_bad(why, "%d window dimensions for %s", n->window->count, tt_hlo_show(why, x));
  return true;
}

static bool read_numbers(const tt_instr *in, bool scatter, tt_numbers *n, tt_why *why) {
  const tt_attr *all =
      tt_attr_find(in, scatter ? "scatter_dimension_numbers" : "dimension_numbers");
  const tt_attr *vector = tt_attr_field(all, "index_vector_dim");
  *n = (tt_numbers){
      .window = tt_attr_field(all, scatter ? "update_window_dims" : "offset_dims"),
      .gone = tt_attr_field(all, scatter ? "inserted_window_dims" : "collapsed_slice_dims"),
      .operand_batch =
          tt_attr_field(all, scatter ? "input_batching_dims" : "operand_batching_dims"),
      .index_batch = tt_attr_field(all, scatter ? "scatter_indices_batching_dims"
                                                : "start_indices_batching_dims"),
      .map = tt_attr_field(all, scatter ? "scatter_dims_to_operand_dims" : "start_index_map"),
      .vector = vector ? vector->value : -1};
  if (!n->window || !n->gone || !n->operand_batch || !n->index_batch || !n->map)
    return tt_hlo_bad(why, "incomplete dimension numbers");
  return true;
}

static bool rule_gather(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0), *indices = tt_operand_type(in, 1);
  const tt_attr *sizes = tt_attr_find(in, "slice_sizes");
  tt_numbers n;
  if (!read_numbers(in, false, &n, why) || !check_numbers(&n, x, indices, why) ||
      !tt_attr_sized(sizes, x->rank, "slice_sizes", why))
    return false;
  int64_t batch[TT_MAX_RANK] = {0}, offset[TT_MAX_RANK] = {0};
  int batches = index_dims(indices, n.vector, batch), offsets = 0;
  if (batches + n.window->count > TT_MAX_RANK)
    return tt_hlo_bad(why, "the result has more than %d dimensions", TT_MAX_RANK);
  for (int i = 0; i < x->rank; i++) {
    bool gone = tt_attr_has(n.gone, i) || tt_attr_has(n.operand_batch, i);
    int64_t size = sizes->values[i];
    if (size < 0 || size > x->dims[i] || (gone && size > 1))
      return tt_hlo_bad(why, "slice size %lld of dimension %d of %s", (long long)size, i,
                        tt_hlo_show(why, x));
    if (!gone) offset[offsets++] = size;
  }
  tt_type type = {.dtype = x->dtype, .rank = batches + n.window->count};
  if (!tt_attr_dims(n.window, type.rank, "offset_dims", why)) return false;
  for (int i = 0, b = 0, o = 0; i < type.rank; i++)
    type.dims[i] = tt_attr_has(n.window, i) ? offset[o++] : batch[b++];
  *out = type;
  return true;
}

static bool rule_scatter(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0), *indices = tt_operand_type(in, 1);
  const tt_type *updates = tt_operand_type(in, 2);
  tt_type scalars[2] = {{.dtype = x->dtype}, {.dtype = x->dtype}};
  tt_numbers n;
  if (!read_numbers(in, true, &n, why) || !check_numbers(&n, x, indices, why) ||
      !tt_attr_dims(n.window, updates->rank, "update_window_dims", why) ||
      !tt_region_is(in, 0, 2, scalars, 1, scalars, why))
    return false;
  int64_t batch[TT_MAX_RANK] = {0}, window[TT_MAX_RANK] = {0};
  int batches = index_dims(indices, n.vector, batch), windows = 0;
  for (int i = 0; i < x->rank; i++)
    if (!tt_attr_has(n.gone, i) && !tt_attr_has(n.operand_batch, i)) window[windows++] = x->dims[i];
  bool ok = updates->dtype == x->dtype && updates->rank == batches + n.window->count;
  for (int i = 0, b = 0, w = 0; ok && i < updates->rank; i++)
    ok =
        tt_attr_has(n.window, i) ? updates->dims[i] <= window[w++] : updates->dims[i] == batch[b++];
  if (!ok)
    return tt_hlo_bad(why, "updates %s do not fit indices %s and operand %s",
                      tt_hlo_show(why, updates), tt_hlo_show(why, indices), tt_hlo_show(why, x));
  *out = *x;
  return true;
}

/* -- Builders -- */

tt_node *tt_hlo_gather(tt_hlo *h, tt_node *x, tt_node *indices, const tt_gather *d) {
  TT_NEED(h, gather, x, indices);
  tt_attr fields[] = {
      tt_attr_list(h, "offset_dims", d->offset_dims, d->offset_count),
      tt_attr_list(h, "collapsed_slice_dims", d->collapsed_dims, d->collapsed_count),
      tt_attr_list(h, "operand_batching_dims", d->operand_batch, d->batch_count),
      tt_attr_list(h, "start_indices_batching_dims", d->index_batch, d->batch_count),
      tt_attr_list(h, "start_index_map", d->start_map, d->start_count),
      tt_attr_plain("index_vector_dim", d->index_vector_dim)};
  tt_attr attrs[] = {tt_attr_struct("dimension_numbers", "#stablehlo.gather<", fields, 6),
                     tt_attr_i64s("slice_sizes", d->slice_sizes, x->type.rank),
                     tt_attr_bool("indices_are_sorted", false)};
  return tt_hlo_emit1(h, TT_DRAFT(gather, attrs, 3, x, indices), x->type);
}

static void overwrite(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)h, (void)user;
  results[0] = args[1];
}

static tt_block *combiner_region(tt_hlo *h, tt_combiner combiner, tt_dtype dtype) {
  static const tt_reducer reducers[] = {
      [TT_ADD] = TT_SUM, [TT_MUL] = TT_PROD, [TT_SMAX] = TT_MAX, [TT_SMIN] = TT_MIN};
  tt_type scalars[2] = {{.dtype = dtype}, {.dtype = dtype}};
  int op = TT_OPCODE_scatter;
  if (combiner == TT_SET) return tt_hlo_region(h, op, 2, scalars, 1, overwrite, NULL);
  return tt_hlo_reducer_region(h, op, reducers[combiner], dtype);
}

tt_node *tt_hlo_scatter(tt_hlo *h, tt_node *x, tt_node *indices, tt_node *updates,
                        const tt_scatter *d, tt_combiner combiner) {
  TT_NEED(h, scatter, x, indices, updates);
  tt_block *region = combiner_region(h, combiner, x->type.dtype);
  tt_attr fields[] = {
      tt_attr_list(h, "update_window_dims", d->window_dims, d->window_count),
      tt_attr_list(h, "inserted_window_dims", d->inserted_dims, d->inserted_count),
      tt_attr_list(h, "input_batching_dims", d->operand_batch, d->batch_count),
      tt_attr_list(h, "scatter_indices_batching_dims", d->index_batch, d->batch_count),
      tt_attr_list(h, "scatter_dims_to_operand_dims", d->scatter_map, d->scatter_count),
      tt_attr_plain("index_vector_dim", d->index_vector_dim)};
  tt_attr attrs[] = {tt_attr_struct("scatter_dimension_numbers", "#stablehlo.scatter<", fields, 6),
                     tt_attr_bool("indices_are_sorted", false),
                     tt_attr_bool("unique_indices", d->unique)};
  tt_node *operands[] = {x, indices, updates};
  tt_instr draft = {.op = TT_OPCODE_scatter,
                    .rule = rule_scatter,
                    .operands = operands,
                    .operand_count = 3,
                    .attrs = attrs,
                    .attr_count = 3,
                    .regions = &region,
                    .region_count = 1};
  return tt_hlo_emit1(h, &draft, x->type);
}
