/* The op table: one row per operator, and what a lowering may ask about the call it lowers.
 *
 * A row is named after ATen's functional overload. In-place and out= forms are derived from it
 * through the schema's alias marks; they have no rows. A lowering reads its arguments by their
 * position in the schema, builds HLO, and states its results. Errors stick to the builder (see
 * hlo.h), so a lowering is a plain function without error paths. */
#ifndef TT_OPS_H
#define TT_OPS_H

#include "hlo/hlo.h"
#include "pjrt/target.h"

typedef enum tt_op_class {
  TT_POINTWISE, /* one element in, one element out, after broadcasting */
  TT_REDUCE,
  TT_MATMUL,
  TT_CONV,
  TT_VIEW,   /* moves elements, computes nothing: cat, flip, repeat, .. */
  TT_CREATE, /* makes values from arguments alone */
  TT_INDEX,
  TT_NORM,
  TT_LOSS,
  TT_RANDOM, /* consumes the generator: two more numbers, seed and offset, reach the lowering */
  TT_POOL,
  TT_SORT,
  TT_LINALG,
  TT_LAPACK, /* linear algebra that only LAPACK has */
  TT_OPTIM,
  TT_FOREACH, /* applies the row named `base` to each element of its lists */
  TT_COLLECTIVE
} tt_op_class;

typedef struct tt_lower tt_lower;
typedef void (*tt_lower_fn)(tt_lower *cx);

typedef struct tt_op_row {
  const char *name; /* "add.Tensor"; "relu" for a default overload */
  tt_op_class cls;
  tt_lower_fn lower;
  int param;        /* the family's selector, e.g. a tt_hlo_op */
  const char *base; /* TT_FOREACH: the row applied to each element; else NULL */
  const char
      *statics; /* names of number arguments whose value shapes the program, "dim,eps"; "*": all */
  const char *doc; /* one sentence */
} tt_op_row;

/* All rows, in table order; never NULL. */
const tt_op_row *tt_op_rows(int *count);
/* NULL if there is none. O(1) after the first call; thread-safe. */
const tt_op_row *tt_op_find(const char *name);
const char *tt_op_class_name(tt_op_class cls);
/* Whether the user's choice of a precision is about this row: products and convolutions. What other
 * rows multiply, they multiply in full precision. */
bool tt_op_multiplies(const tt_op_row *row);

/* How far a row's f32 results may be from what the CPU computes in f64 from the same operands, as
 * the sum of squared errors divided by that of the squared values: TT_TOLERANCE, or what a LOOSE
 * entry beside the row says, and why. */
#define TT_TOLERANCE 1e-7
typedef struct tt_op_tolerance {
  const char *name; /* of the row */
  double value;
  const char *why;
} tt_op_tolerance;
tt_op_tolerance tt_op_tolerance_of(const char *name); /* why: NULL if it is TT_TOLERANCE */

/* -- Arguments of a call, by schema position -- */
typedef enum tt_arg_kind {
  TT_ARG_NONE,    /* an optional that was not given */
  TT_ARG_TENSOR,  /* one tensor: `first` numbers it among the call's tensors */
  TT_ARG_TENSORS, /* `count` tensors from `first` on; `present[i]` false where the list has None */
  TT_ARG_NUMBER,  /* a number known only at run time: `first` numbers it among the call's numbers */
  TT_ARG_NUMBERS, /* `count` run-time numbers from `first` on (ScalarList), or `equal` ones */
  TT_ARG_INT,     /* a static int, bool, or dtype */
  TT_ARG_FLOAT,   /* a static number that is not an int */
  TT_ARG_COMPLEX, /* a static complex number: floats[0], floats[1] */
  TT_ARG_INTS,    /* static ints or bools */
  TT_ARG_FLOATS,  /* static floats */
  TT_ARG_STRING
} tt_arg_kind;

typedef struct tt_arg {
  tt_arg_kind kind;
  int first, count;
  bool equal;     /* NUMBERS: all are the number `first` */
  tt_dtype dtype; /* NUMBER(S), and INT/FLOAT/COMPLEX standing for a Scalar: its own dtype (BOOL,
                     I64, F64, C128); an INT standing for a dtype argument: that dtype */
  int64_t i;
  double f;
  const int64_t *ints;
  const double *floats;
  const bool *present;
  const char *text;
} tt_arg;

#define TT_MAX_RESULTS 8192

/* What a lowering is given. Filled by core/call; lowerings use the functions below. */
struct tt_lower {
  tt_hlo *h;
  const tt_op_row *row;
  const tt_arg *args;
  int arg_count;
  tt_node *const *tensors; /* the call's tensors as read through their views */
  tt_node *const *numbers; /* the call's run-time numbers, rank 0, F64 / F32, I64, or BOOL */
  tt_dtype common;         /* PyTorch's result_type of all tensors and numbers */
  tt_dtype fractions;      /* of whole operands: PyTorch's default dtype, F32 if INVALID */
  const tt_type *promised; /* result types that PyTorch's Meta kernel promises; NULL if unknown */
  int promised_count;
  tt_node *seed, *offset;  /* TT_RANDOM: rank-0 I64 */
  bool checks;             /* Debug: emit index checks */
  const tt_target *target; /* what the program is compiled for */
  tt_node **results;       /* [result_capacity], set by tt_out */
  int result_count, result_capacity;
  tt_node **check_flags; /* rank-0 BOOL, true means violated; set by tt_check */
  const char **check_texts;
  tt_code *check_codes;
  int check_count;
};
#define TT_MAX_CHECKS 16

bool tt_has(const tt_lower *cx, int i);        /* argument i is present and not None */
tt_node *tt_in(tt_lower *cx, int i);           /* tensor (or number in a tensor's place) */
int tt_count(const tt_lower *cx, int i);       /* length of a list argument */
tt_node *tt_in_at(tt_lower *cx, int i, int k); /* k-th of a list; NULL where the list has None */
int64_t tt_int(tt_lower *cx, int i);           /* static; fails on a run-time number */
bool tt_bool(tt_lower *cx, int i);
double tt_float(tt_lower *cx, int i); /* static number; fails on a run-time number */
tt_node *tt_num(tt_lower *cx, int i,
                tt_dtype dtype); /* static or run-time number as rank-0 dtype */
tt_node *tt_num_at(tt_lower *cx, int i, int k, tt_dtype dtype); /* k-th of a number list */
const int64_t *tt_ints(tt_lower *cx, int i, int *count);
const char *tt_str(tt_lower *cx, int i); /* "" if absent */
tt_dtype tt_dtype_arg(tt_lower *cx, int i, tt_dtype otherwise);
/* Dim argument i, wrapped into 0..rank-1 (rank 0 counts as 1). */
int tt_dim(tt_lower *cx, int i, int rank);
/* A list of dims as a wrapped, ascending set; absent or empty means all when `empty_is_all`. */
int tt_dims(tt_lower *cx, int i, int rank, bool empty_is_all, int *dims);

/* The promised type of result k; fails if Meta gave none. */
const tt_type *tt_promised(tt_lower *cx, int k);
/* States result k as it is. */
void tt_out(tt_lower *cx, int k, tt_node *x);
/* States result k, converted to the promised dtype and broadcast to the promised shape if there
 * is a promise. */
void tt_out_as(tt_lower *cx, int k, tt_node *x);
/* In Debug: raise `code` with this text when `violated` (any shape, bool) is true anywhere. */
void tt_check(tt_lower *cx, tt_node *violated, tt_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* In Debug: every element of the integer tensor is in -size..size-1 (or 0..size-1). */
void tt_check_index(tt_lower *cx, tt_node *index, int64_t size, bool negative, tt_code code,
                    const char *what);

/* -- Shared by the families (helpers.c) -- */
/* The dtype PyTorch computes in: f16/bf16 -> F32, others themselves. */
tt_dtype tt_compute_dtype(tt_dtype dtype);
tt_node *tt_cast(tt_lower *cx, tt_node *x, tt_dtype dtype);
/* The same, floats to integers as x86 does it: through a signed integer of 32 bits, or of 64, whose
 * least number stands for what it cannot hold, and whose low bits remain. XLA would saturate. */
tt_node *tt_cast_wrapping(tt_lower *cx, tt_node *x, tt_dtype dtype);
/* Argument i, a tensor or a number, in `dtype`. */
tt_node *tt_in_as(tt_lower *cx, int i, tt_dtype dtype);
/* The dtype of an operator whose results are floating (or complex) even for integers. */
tt_dtype tt_float_common(tt_lower *cx);
/* Result k in `dtype`, rounded once; then as tt_out_as. */
void tt_out_in(tt_lower *cx, int k, tt_node *x, tt_dtype dtype);
/* Broadcasts n nodes to their common shape; dtypes stay. */
void tt_broadcast_all(tt_lower *cx, tt_node **xs, int n);
/* Casts both to `dtype` and broadcasts both to their common shape. */
void tt_broadcast_pair(tt_lower *cx, tt_node **a, tt_node **b, tt_dtype dtype);
/* Reduces and puts the dims back with size 1 if keepdim. */
tt_node *tt_reduce_keep(tt_lower *cx, tt_reducer reducer, tt_node *x, const int *dims, int count,
                        bool keepdim);
/* A rank-0 constant of x's dtype. */
tt_node *tt_like(tt_lower *cx, tt_node *x, double value);
/* Flat row-major reshape to rank 1, and back to given dims. */
tt_node *tt_flatten(tt_lower *cx, tt_node *x);
/* Whether x has at least `rank` dims, which the poison node has not: else fails the builder. For
 * lowerings that count dims from the end. */
static inline bool tt_need_rank(tt_lower *cx, const tt_node *x, int rank) {
  if (x->type.rank >= rank) return true;
  tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "%s: expected at least %d dims, got %d", cx->row->name,
              rank, x->type.rank);
  return false;
}
/* Philox-4x32-10: `count` uniform 32-bit words (U32, rank 1) from the call's seed and offset. */
tt_node *tt_philox(tt_lower *cx, int64_t count);
/* Blocks of four words by which one call of a TT_RANDOM row moves the generator's offset: the same
 * in every mode and for every dtype. `numel` is the number of elements of result 0. */
int64_t tt_philox_blocks(const tt_op_row *row, int64_t numel);

#endif
