/* Element types and tensor types, shared by every room above. */
#ifndef TT_TYPES_H
#define TT_TYPES_H

#include "base/base.h"

#define TT_MAX_RANK 64

/* name, number (PJRT_Buffer_Type's), MLIR spelling, bytes, kind */
#define TT_DTYPES(X)                                                                               \
  X(BOOL, 1, "i1", 1, BOOL)                                                                        \
  X(I8, 2, "i8", 1, SIGNED)                                                                        \
  X(I16, 3, "i16", 2, SIGNED)                                                                      \
  X(I32, 4, "i32", 4, SIGNED)                                                                      \
  X(I64, 5, "i64", 8, SIGNED)                                                                      \
  X(U8, 6, "ui8", 1, UNSIGNED)                                                                     \
  X(U16, 7, "ui16", 2, UNSIGNED)                                                                   \
  X(U32, 8, "ui32", 4, UNSIGNED)                                                                   \
  X(U64, 9, "ui64", 8, UNSIGNED)                                                                   \
  X(F16, 10, "f16", 2, FLOAT)                                                                      \
  X(F32, 11, "f32", 4, FLOAT)                                                                      \
  X(F64, 12, "f64", 8, FLOAT)                                                                      \
  X(BF16, 13, "bf16", 2, FLOAT)                                                                    \
  X(C64, 14, "complex<f32>", 8, COMPLEX)                                                           \
  X(C128, 15, "complex<f64>", 16, COMPLEX)                                                         \
  X(F8E5M2, 16, "f8E5M2", 1, FLOAT)                                                                \
  X(F8E4M3FN, 17, "f8E4M3FN", 1, FLOAT)                                                            \
  X(F8E5M2FNUZ, 19, "f8E5M2FNUZ", 1, FLOAT)                                                        \
  X(F8E4M3FNUZ, 20, "f8E4M3FNUZ", 1, FLOAT)

typedef enum tt_dtype {
  TT_INVALID = 0,
#define X(name, number, mlir, bytes, kind) TT_##name = number,
  TT_DTYPES(X)
#undef X
  /* Complex numbers of two halves are only a way to lay out memory: storages hold their bits as
   * U32, programs compute with C64, and no program or buffer has this type. */
  TT_C32 = 21,
  TT_DTYPE_LIMIT = 22
} tt_dtype;

typedef enum tt_kind {
  TT_KIND_BOOL,
  TT_KIND_SIGNED,
  TT_KIND_UNSIGNED,
  TT_KIND_FLOAT,
  TT_KIND_COMPLEX
} tt_kind;

const char *tt_dtype_name(tt_dtype dtype); /* MLIR spelling; "invalid" for others */
int64_t tt_dtype_bytes(tt_dtype dtype);    /* 0 for TT_INVALID */
tt_kind tt_dtype_kind(tt_dtype dtype);
bool tt_is_float(tt_dtype dtype);
bool tt_is_complex(tt_dtype dtype);
bool tt_is_integer(tt_dtype dtype);         /* signed or unsigned, not bool */
tt_dtype tt_dtype_real(tt_dtype dtype);     /* C64 -> F32, C128 -> F64, else itself */
tt_dtype tt_dtype_held(tt_dtype dtype);     /* by storages: C32 -> U32, else itself */
tt_dtype tt_dtype_computed(tt_dtype dtype); /* in programs: C32 -> C64, else itself */
tt_dtype tt_dtype_complex(tt_dtype dtype);  /* F32 -> C64, F64 -> C128, complex stays, else C64 */

/* A dense row-major tensor type. Plain data: compare with tt_type_equal, never memcmp. */
typedef struct tt_type {
  tt_dtype dtype;
  int rank; /* 0..TT_MAX_RANK */
  int64_t dims[TT_MAX_RANK];
} tt_type;

tt_type tt_type_make(tt_dtype dtype, int rank, const int64_t *dims);
bool tt_type_equal(const tt_type *a, const tt_type *b);
bool tt_type_same_dims(const tt_type *a, const tt_type *b);
int64_t tt_type_numel(const tt_type *type);
/* false when the type is malformed or its byte size overflows int64. */
bool tt_type_bytes(const tt_type *type, int64_t *bytes);
void tt_type_print(const tt_type *type, tt_text *text); /* tensor<2x3xf32> */

#endif
