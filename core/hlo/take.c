/* The two gathers that PyTorch's indexing needs most. */
#include "hlo/internal.h"

/* Whether x has elements at all; if not, `empty` gets the only possible result. */
static bool nothing_to_take(tt_hlo *h, const tt_node *x, const tt_type *result, int dim,
                            tt_node **empty) {
  if (!tt_type_numel(result)) {
    *empty = tt_hlo_zeros(h, result);
    return true;
  }
  if (x->type.dims[dim]) return false;
  *empty = tt_hlo_fail(h, TT_OUT_OF_RANGE, "an index into dimension %d, which has size 0", dim);
  return true;
}

tt_node *tt_hlo_take(tt_hlo *h, tt_node *x, tt_node *idx, int dim) {
  TT_NEED(h, gather, x, idx);
  if (!x->type.rank) x = tt_hlo_reshape(h, x, 1, (int64_t[]){1});
  int rank = x->type.rank, width = idx->type.rank, offset[TT_MAX_RANK], offsets = 0;
  if (dim < 0 || dim >= rank || !tt_hlo_rank_ok(h, rank - 1 + width, "take"))
    return tt_hlo_fail(h, TT_INVALID_ARGUMENT, "take: no dimension %d in rank %d", dim, rank);
  tt_type result = {.dtype = x->type.dtype};
  int64_t sizes[TT_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    sizes[i] = i == dim ? 1 : x->type.dims[i];
    for (int k = 0; i == dim && k < width; k++) result.dims[result.rank++] = idx->type.dims[k];
    if (i == dim) continue;
    offset[offsets++] = result.rank;
    result.dims[result.rank++] = x->type.dims[i];
  }
  tt_node *empty;
  if (nothing_to_take(h, x, &result, dim, &empty)) return empty;
  tt_gather numbers = {.offset_dims = offset,
                       .offset_count = offsets,
                       .collapsed_dims = &dim,
                       .collapsed_count = 1,
                       .start_map = &dim,
                       .start_count = 1,
                       .index_vector_dim = width,
                       .slice_sizes = sizes};
  return tt_hlo_gather(h, x, idx, &numbers);
}

/* x cut down to idx's dims, except along `dim`. */
static tt_node *cropped(tt_hlo *h, tt_node *x, const tt_node *idx, int dim) {
  int64_t start[TT_MAX_RANK] = {0}, limit[TT_MAX_RANK];
  for (int i = 0; i < x->type.rank; i++) limit[i] = i == dim ? x->type.dims[i] : idx->type.dims[i];
  return tt_hlo_slice(h, x, start, limit, NULL);
}

tt_node *tt_hlo_take_along(tt_hlo *h, tt_node *x, tt_node *idx, int dim) {
  TT_NEED(h, gather, x, idx);
  if (x->type.rank != idx->type.rank)
    return tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                       "take_along: index of rank %d for a tensor of rank %d", idx->type.rank,
                       x->type.rank);
  if (!x->type.rank) return x;
  int rank = x->type.rank, batch[TT_MAX_RANK], count = 0;
  if (dim < 0 || dim >= rank)
    return tt_hlo_fail(h, TT_INVALID_ARGUMENT, "take_along: no dimension %d in rank %d", dim, rank);
  tt_type result = idx->type;
  result.dtype = x->type.dtype;
  tt_node *empty;
  if (nothing_to_take(h, x, &result, dim, &empty)) return empty;
  int64_t sizes[TT_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    sizes[i] = 1;
    if (i != dim) batch[count++] = i;
  }
  tt_gather numbers = {.collapsed_dims = &dim,
                       .collapsed_count = 1,
                       .operand_batch = batch,
                       .index_batch = batch,
                       .batch_count = count,
                       .start_map = &dim,
                       .start_count = 1,
                       .index_vector_dim = rank,
                       .slice_sizes = sizes};
  return tt_hlo_gather(h, cropped(h, x, idx, dim), idx, &numbers);
}
