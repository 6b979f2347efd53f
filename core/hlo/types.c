#include "hlo/types.h"

#include <string.h>

typedef struct tt_dtype_info {
  const char *name;
  int bytes;
  tt_kind kind;
} tt_dtype_info;

static const tt_dtype_info infos[TT_DTYPE_LIMIT] = {
#define X(name, number, mlir, bytes, kind) [number] = {mlir, bytes, TT_KIND_##kind},
    TT_DTYPES(X)
#undef X
        [TT_C32] = {"complex<f16>", 4, TT_KIND_COMPLEX},
};

/* The row of a dtype; that of TT_INVALID (no name) for anything else. */
static const tt_dtype_info *info_of(tt_dtype dtype) {
  int number = (int)dtype;
  return &infos[number > 0 && number < TT_DTYPE_LIMIT ? number : 0];
}

const char *tt_dtype_name(tt_dtype dtype) {
  const char *name = info_of(dtype)->name;
  return name ? name : "invalid";
}

int64_t tt_dtype_bytes(tt_dtype dtype) { return info_of(dtype)->bytes; }
tt_kind tt_dtype_kind(tt_dtype dtype) { return info_of(dtype)->kind; }
bool tt_is_float(tt_dtype dtype) { return info_of(dtype)->kind == TT_KIND_FLOAT; }
bool tt_is_complex(tt_dtype dtype) { return info_of(dtype)->kind == TT_KIND_COMPLEX; }

bool tt_is_integer(tt_dtype dtype) {
  tt_kind kind = info_of(dtype)->kind;
  return kind == TT_KIND_SIGNED || kind == TT_KIND_UNSIGNED;
}

tt_dtype tt_dtype_real(tt_dtype dtype) {
  return dtype == TT_C64 ? TT_F32 : dtype == TT_C128 ? TT_F64 : dtype;
}

tt_dtype tt_dtype_held(tt_dtype dtype) { return dtype == TT_C32 ? TT_U32 : dtype; }
tt_dtype tt_dtype_computed(tt_dtype dtype) { return dtype == TT_C32 ? TT_C64 : dtype; }

tt_dtype tt_dtype_complex(tt_dtype dtype) {
  return dtype == TT_F64 || dtype == TT_C128 ? TT_C128 : TT_C64;
}

tt_type tt_type_make(tt_dtype dtype, int rank, const int64_t *dims) {
  tt_type type = {.dtype = dtype, .rank = rank};
  if (rank < 0 || rank > TT_MAX_RANK) return (tt_type){.dtype = TT_INVALID};
  if (rank) memcpy(type.dims, dims, (size_t)rank * sizeof *dims);
  return type;
}

bool tt_type_same_dims(const tt_type *a, const tt_type *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i]) return false;
  return true;
}

bool tt_type_equal(const tt_type *a, const tt_type *b) {
  return a->dtype == b->dtype && tt_type_same_dims(a, b);
}

int64_t tt_type_numel(const tt_type *type) {
  int64_t numel = 1;
  for (int i = 0; i < type->rank; i++)
    if (!tt_mul_i64(numel, type->dims[i], &numel)) return INT64_MAX;
  return numel;
}

bool tt_type_bytes(const tt_type *type, int64_t *bytes) {
  int64_t total = tt_dtype_bytes(type->dtype);
  if (!total || type->rank < 0 || type->rank > TT_MAX_RANK) return false;
  for (int i = 0; i < type->rank; i++)
    if (type->dims[i] < 0 || !tt_mul_i64(total, type->dims[i], &total)) return false;
  *bytes = total;
  return true;
}

/* Writes the decimal digits of a dim; returns how many. */
static size_t put_dim(char *out, int64_t dim) {
  char digits[24];
  size_t count = 0, sign = dim < 0;
  uint64_t rest = sign ? 0 - (uint64_t)dim : (uint64_t)dim;
  do digits[count++] = (char)('0' + rest % 10);
  while (rest /= 10);
  if (sign) digits[count++] = '-';
  for (size_t i = 0; i < count; i++) out[i] = digits[count - 1 - i];
  return count;
}

void tt_type_print(const tt_type *type, tt_text *text) {
  char line[32 + 24 * TT_MAX_RANK];
  size_t size = 7;
  memcpy(line, "tensor<", size);
  for (int i = 0; i < type->rank && i < TT_MAX_RANK; i++) {
    size += put_dim(line + size, type->dims[i]);
    line[size++] = 'x';
  }
  const char *name = tt_dtype_name(type->dtype);
  size_t length = strlen(name);
  memcpy(line + size, name, length);
  size += length;
  line[size++] = '>';
  tt_text_add(text, line, size);
}
