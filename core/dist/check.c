#include "dist/internal.h"

tt_status tt_dist_check_parts(const char *what, const char *list, const tt_dist_tensor *parts,
                              int64_t count, tt_dist_tensor one, int size) {
  if (count != size)
    return tt_error(TT_INVALID_ARGUMENT,
                    "%s: the %s list has %lld tensors, but the group has %d ranks", what, list,
                    (long long)count, size);
  for (int64_t i = 0; i < count; i++) {
    if (parts[i].numel == one.numel && parts[i].dtype == one.dtype) continue;
    return tt_error(TT_INVALID_ARGUMENT,
                    "%s: the tensors of the %s list must have %lld elements of %s, not %lld of %s",
                    what, list, (long long)one.numel, tt_dtype_name(one.dtype),
                    (long long)parts[i].numel, tt_dtype_name(parts[i].dtype));
  }
  return TT_SUCCESS;
}

tt_status tt_dist_check_whole(const char *what, const char *large, tt_dist_tensor whole,
                              const char *small, tt_dist_tensor part, int size) {
  if (whole.numel == part.numel * size && whole.dtype == part.dtype) return TT_SUCCESS;
  return tt_error(TT_INVALID_ARGUMENT,
                  "%s: the %s tensor must have %d times the elements of the %s tensor, and its "
                  "dtype: %lld of %s, not %lld of %s",
                  what, large, size, small, (long long)(part.numel * size),
                  tt_dtype_name(part.dtype), (long long)whole.numel, tt_dtype_name(whole.dtype));
}

tt_status tt_dist_split(int64_t rows, int64_t row, const int64_t *given, int64_t count, int size,
                        int64_t *elements) {
  int64_t total = 0;
  bool fits = count == 0 || count == size;
  for (int i = 0; fits && i < size; i++) {
    int64_t own = count ? given[i] : rows / size;
    fits = own >= 0;
    elements[i] = own * row;
    total += own;
  }
  if (fits && total == rows) return TT_SUCCESS;
  return tt_error(TT_INVALID_ARGUMENT,
                  "all_to_all_single: the split sizes must be %d numbers, none negative, that add "
                  "up to %lld, the size of dim 0",
                  size, (long long)rows);
}
