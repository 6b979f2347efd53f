/* Writing a lowering: what it may ask about its call, how it states results and checks, and small
 * steps that the families share (helpers.c). */
#ifndef TT_LOWER_H
#define TT_LOWER_H

#include "ops/ops.h"

bool tt_has(const tt_lower *cx, int i);        /* argument i is present and not None */
tt_node *tt_in(tt_lower *cx, int i);           /* tensor (or number in a tensor's place) */
int tt_list_size(const tt_lower *cx, int i);   /* length of a list argument */
tt_node *tt_in_at(tt_lower *cx, int i, int k); /* k-th of a list; NULL where the list has None */
/* Which of the call's tensors that is; -1: none. */
int tt_tensor_at(const tt_lower *cx, int i, int k);
int64_t tt_int(tt_lower *cx, int i); /* static; fails on a run-time number */
bool tt_bool(tt_lower *cx, int i);
bool tt_moves(const tt_lower *cx, int i); /* a place, known only at run time: tt_num has it */
double tt_float(tt_lower *cx, int i);     /* static number; fails on a run-time number */
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

/* -- Sizes that are bounds (tt_op_length); lengths.c -- */
/* x, made of argument i, with what the reducer leaves out where there is padding. */
tt_node *tt_pad(tt_lower *cx, int i, tt_node *x, tt_reducer neutral);
/* The same of element k of the list argument i. */
tt_node *tt_pad_at(tt_lower *cx, int i, int k, tt_node *x, tt_reducer neutral);
/* The same with `value` (rank 0, of x's dtype). */
tt_node *tt_pad_with(tt_lower *cx, int i, tt_node *x, tt_node *value);
/* Argument i's tensor, with zeros where there is padding. */
tt_node *tt_in_counted(tt_lower *cx, int i);
/* The same along dim `at` of a node, which is as long as argument i's `dim`. */
tt_node *tt_pad_along(tt_lower *cx, int i, int dim, tt_node *x, int at, tt_reducer neutral);
/* How many elements argument i has in these dims, as rank-0 `dtype`. */
tt_node *tt_count(tt_lower *cx, int i, const int *dims, int count, tt_dtype dtype);
/* x, which is argument i in reverse along the dim: what counts before the padding again. */
tt_node *tt_to_front(tt_lower *cx, int i, int dim, tt_node *x);
/* Places along argument i's dim, padding counted, become places among the elements that there are.
 */
tt_node *tt_place_counted(tt_lower *cx, int i, int dim, tt_node *place);
/* For each element of a type whose dim d is an argument's dim, its place among those that there
 * are (U64, flat). A TT_RANDOM row that asks draws for as many as there are. */
typedef struct tt_axis {
  int arg, dim;
} tt_axis;
tt_node *tt_places_counted(tt_lower *cx, const tt_type *type, const tt_axis *axes);
/* Whether how many there are is known only at run time. */
bool tt_padded(const tt_lower *cx, int i);
bool tt_padded_along(const tt_lower *cx, int i, int dim);

/* The type of result k as PyTorch's Meta kernel has it; fails if Meta gave none. */
const tt_type *tt_meta_type(tt_lower *cx, int k);
/* Its dtype, or `otherwise` if Meta gave none: where the result type of all operands counts numbers
 * (alpha, a factor) that PyTorch leaves out of the promotion. */
tt_dtype tt_meta_dtype(const tt_lower *cx, int k, tt_dtype otherwise);
/* States result k as it is. */
void tt_out(tt_lower *cx, int k, tt_node *x);
/* States result k, converted to Meta's dtype and broadcast to Meta's shape if Meta gave a type. */
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
tt_dtype tt_float_result_dtype(tt_lower *cx);
/* Result k in `dtype`, rounded once; then as tt_out_as. */
void tt_out_in(tt_lower *cx, int k, tt_node *x, tt_dtype dtype);
/* Broadcasts n nodes to their common shape; dtypes stay. */
void tt_broadcast_all(tt_lower *cx, tt_node **xs, int n);
/* Casts both to `dtype` and broadcasts both to their common shape. */
void tt_broadcast_pair(tt_lower *cx, tt_node **a, tt_node **b, tt_dtype dtype);
/* Reduces by TT_MAX or TT_MIN; NaN wins. Where it need not, since it comes back by another way (a
 * softmax's sum), tt_hlo_reduce compiles faster: XLA's CPU compiler leaves it to YNNPACK, which
 * drops NaN. */
tt_node *tt_extreme(tt_lower *cx, tt_reducer reducer, tt_node *x, const int *dims, int count);
/* Reduces, extremes as tt_extreme does, and puts the dims back with size 1 if keepdim. */
tt_node *tt_reduce_keep(tt_lower *cx, tt_reducer reducer, tt_node *x, const int *dims, int count,
                        bool keepdim);
/* A rank-0 constant of x's dtype. */
tt_node *tt_like(tt_lower *cx, tt_node *x, double value);
/* x * c, x + c for a number that is known. */
tt_node *tt_times(tt_lower *cx, tt_node *x, double c);
tt_node *tt_plus(tt_lower *cx, tt_node *x, double c);
/* a / b for real numbers, rounded once: where b is a number, or broadcast, XLA would multiply by
 * its reciprocal; and quotients of f32 on GPUs are nearly right only, unlike those of f64. */
tt_node *tt_quotient(tt_lower *cx, tt_node *a, tt_node *b);
/* A float product as it is rounded: what is added to it XLA would add before that. Where a number
 * is rounded up, or compared with one that it may equal, such a last bit decides. */
tt_node *tt_product_apart(tt_lower *cx, tt_node *x);
/* x, made once for all that use it: XLA's CPU compiler makes it anew in each kernel that does, and
 * each instruction that it then has takes ten microseconds to load. */
tt_node *tt_once(tt_lower *cx, tt_node *x);
/* a times b, contracting dim contract_a of a with contract_b of b; their first `batch` dims are
 * batch dims. Operands of a large one of bf16 are laid out as XLA's CPU compiler wants them. */
tt_node *tt_contract(tt_lower *cx, tt_node *a, tt_node *b, int batch, int contract_a,
                     int contract_b, tt_dtype result); /* contract.c */
/* The transposes of the matrices in the last two dims. */
tt_node *tt_swap_last(tt_lower *cx, tt_node *x);
/* Flat row-major reshape to rank 1, and back to given dims. */
tt_node *tt_flatten(tt_lower *cx, tt_node *x);
/* Complex numbers of rank 1 as their real and imaginary parts in turn, and back. */
tt_node *tt_pairs_of_complex(tt_lower *cx, tt_node *x);
tt_node *tt_complex_of_pairs(tt_lower *cx, tt_node *x);
/* Whether x has at least `rank` dims, which the poison node has not: else fails the builder. For
 * lowerings that count dims from the end. */
static inline bool tt_need_rank(tt_lower *cx, const tt_node *x, int rank) {
  if (x->type.rank >= rank) return true;
  tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "%s: expected at least %d dims, got %d", cx->row->name,
              rank, x->type.rank);
  return false;
}

#endif
