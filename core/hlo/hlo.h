/* The StableHLO builder: expressions in, one checked `@main` in generic-form text out.
 *
 * Every function below that returns a node infers the result type and checks its operands. The
 * first error sticks to the builder: from then on each call returns a poison node (rank-0 f32,
 * safe to inspect) and tt_hlo_finish returns that error. So lowerings are written as plain
 * expressions, with no check after each step.
 *
 * Nodes are borrowed from the builder and die with it. Equal expressions give the same node.
 * Thread-compatible.
 *
 * Element-wise functions take operands of one dtype and one shape; a rank-0 operand is broadcast
 * to the other's shape. Nothing else is converted or broadcast implicitly. */
#ifndef TT_HLO_H
#define TT_HLO_H

#include "hlo/types.h"

typedef struct tt_hlo tt_hlo;

typedef struct tt_node {
  tt_type type;
  struct tt_instr *instr; /* what computes it; NULL for a parameter or a region argument */
  int result;             /* which result of instr */
  int id;                 /* SSA number, unique in the builder */
} tt_node;

tt_status tt_hlo_create(tt_hlo **out);
void tt_hlo_destroy(tt_hlo *h);
/* Makes the error stick (the first one wins) and returns the poison node. */
tt_node *tt_hlo_fail(tt_hlo *h, tt_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool tt_hlo_failed(const tt_hlo *h);
/* Words put before the first error's message, e.g. the operator being lowered; NULL clears.
 * `where` is borrowed and must outlive its use. */
void tt_hlo_where(tt_hlo *h, const char *where);
/* How exactly the dot products and convolutions built from now on multiply: DEFAULT is the fastest
 * (one bf16 pass on a TPU), HIGHEST is full precision. CPUs compute in full precision anyway. */
typedef enum tt_precision {
  TT_PRECISION_DEFAULT,
  TT_PRECISION_HIGH,
  TT_PRECISION_HIGHEST
} tt_precision;
tt_precision tt_hlo_precision(tt_hlo *h, tt_precision precision); /* returns the one before */
tt_arena *tt_hlo_arena(tt_hlo *h); /* scratch memory that lives as long as the builder */

/* Parameters, in order. */
tt_node *tt_hlo_param(tt_hlo *h, const tt_type *type);
/* Parameter `param` may be overwritten by result `result` (types must match). */
void tt_hlo_donate(tt_hlo *h, int param, int result);

/* Verifies, drops what no result needs, and appends the module to `*text`, which the caller has
 * initialised and deinitialises. The text depends on nothing but the expressions and the order in
 * which they were built. Errors: the sticky one (what a caller got wrong is INVALID_ARGUMENT);
 * INTERNAL if the verifier objects, or a result or donation makes no sense; RESOURCE_EXHAUSTED. */
tt_status tt_hlo_finish(tt_hlo *h, tt_node *const *results, int count, tt_text *text);
/* After tt_hlo_finish: whether a result depends on a parameter's value. */
bool tt_hlo_is_needed(const tt_node *param);
/* Checks every instruction built so far against the op table of this room. */
tt_status tt_hlo_verify(tt_hlo *h, const char *stage);
/* Number of instructions built so far. */
int tt_hlo_size(const tt_hlo *h);
/* Elements of the largest value that is computed, and not only repeated or arranged. */
int64_t tt_hlo_largest(const tt_hlo *h);
/* From now on maximum, minimum and clamp of floats are written as choices, but for those of
 * tt_hlo_reduce: for a compiler that drops NaN where it joins them with a sum. */
void tt_hlo_choose_extremes(tt_hlo *h);
/* Whether a convolution was built so far. */
bool tt_hlo_convolves(const tt_hlo *h);

/* -- Constants -- */
tt_node *tt_hlo_const(tt_hlo *h, tt_dtype dtype, double value); /* rank 0; bool: value != 0 */
tt_node *tt_hlo_const_i(tt_hlo *h, tt_dtype dtype, int64_t value);
tt_node *tt_hlo_const_c(tt_hlo *h, tt_dtype dtype, double re, double im); /* complex dtypes */
/* Rank 1. */
tt_node *tt_hlo_const_i64s(tt_hlo *h, tt_dtype dtype, const int64_t *values, int64_t count);
tt_node *tt_hlo_const_f64s(tt_hlo *h, tt_dtype dtype, const double *values, int64_t count);
tt_node *tt_hlo_full(tt_hlo *h, const tt_type *type, double value); /* splat of type->dtype */
bool tt_hlo_is_zeros(const tt_node *x); /* a constant whose bytes are all zero */
tt_node *tt_hlo_zeros(tt_hlo *h, const tt_type *type);
tt_node *tt_hlo_iota(tt_hlo *h, const tt_type *type, int dim);
/* The extreme values of a dtype, rank 0: -inf and inf for floats (the largest finite values for
 * formats without infinity). Not for complex. */
tt_node *tt_hlo_lowest(tt_hlo *h, tt_dtype dtype);
tt_node *tt_hlo_highest(tt_hlo *h, tt_dtype dtype);

/* -- Element-wise: tt_hlo_<name>(h, x), tt_hlo_<name>(h, a, b) -- */
/* clang-format off */
#define TT_HLO_UNARY(X)                                                                            \
  X(abs) X(cbrt) X(ceil) X(cosine) X(count_leading_zeros) X(exponential)                           \
  X(exponential_minus_one) X(floor) X(log) X(log_plus_one) X(logistic) X(negate) X(not) X(popcnt)  \
  X(round_nearest_afz) X(round_nearest_even) X(rsqrt) X(sign) X(sine) X(sqrt) X(tan) X(tanh)
#define TT_HLO_BINARY(X)                                                                           \
  X(add) X(and) X(atan2) X(divide) X(maximum) X(minimum) X(multiply) X(or) X(power) X(remainder)   \
  X(shift_left) X(shift_right_arithmetic) X(shift_right_logical) X(subtract) X(xor)
/* Functions of the CHLO dialect, which XLA's plugins expand. */
#define TT_CHLO_UNARY(X)                                                                           \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(bessel_i1e) X(cosh) X(digamma) X(erf)       \
  X(erf_inv) X(erfc) X(lgamma) X(sinh)
#define TT_CHLO_BINARY(X) X(next_after) X(zeta)

typedef enum tt_hlo_op {
#define X(name) TT_HLO_##name,
  TT_HLO_UNARY(X) TT_HLO_BINARY(X) TT_CHLO_UNARY(X) TT_CHLO_BINARY(X)
#undef X
  TT_HLO_ELEMENTWISE_COUNT
} tt_hlo_op;

/* maximum and minimum of bools are or and and; of a NaN and anything, NaN. XLA's CPU compiler drops
 * NaNs unless it is told xla_cpu_enable_fast_min_max = False and they are written as choices. */
tt_node *tt_hlo_unary(tt_hlo *h, tt_hlo_op op, tt_node *x);
tt_node *tt_hlo_binary(tt_hlo *h, tt_hlo_op op, tt_node *a, tt_node *b);
#define X(name)                                                                                    \
  static inline tt_node *tt_hlo_##name(tt_hlo *h, tt_node *x) {                                    \
    return tt_hlo_unary(h, TT_HLO_##name, x);                                                      \
  }
TT_HLO_UNARY(X)
TT_CHLO_UNARY(X)
#undef X
#define X(name)                                                                                    \
  static inline tt_node *tt_hlo_##name(tt_hlo *h, tt_node *a, tt_node *b) {                        \
    return tt_hlo_binary(h, TT_HLO_##name, a, b);                                                  \
  }
TT_HLO_BINARY(X)
TT_CHLO_BINARY(X)
#undef X
/* clang-format on */

typedef enum tt_cmp { TT_EQ, TT_NE, TT_LT, TT_LE, TT_GT, TT_GE } tt_cmp;
tt_node *tt_hlo_compare(tt_hlo *h, tt_cmp direction, tt_node *a, tt_node *b); /* bool result */
/* The same with a total order of floats (-NaN < -inf < .. < inf < NaN). */
tt_node *tt_hlo_compare_total(tt_hlo *h, tt_cmp direction, tt_node *a, tt_node *b);
tt_node *tt_hlo_select(tt_hlo *h, tt_node *pred, tt_node *on_true, tt_node *on_false);
tt_node *tt_hlo_clamp(tt_hlo *h, tt_node *low, tt_node *x, tt_node *high);
tt_node *tt_hlo_is_finite(tt_hlo *h, tt_node *x);
/* Numeric conversion; to bool means x != 0; complex to real drops the imaginary part; float to
 * integer truncates. The same dtype gives x itself. */
tt_node *tt_hlo_convert(tt_hlo *h, tt_node *x, tt_dtype dtype);
/* Reinterprets bits; element sizes may differ as in StableHLO (a trailing dim is added or removed).
 * Not for bool or complex. */
tt_node *tt_hlo_bitcast(tt_hlo *h, tt_node *x, tt_dtype dtype);
tt_node *tt_hlo_complex(tt_hlo *h, tt_node *re, tt_node *im);
tt_node *tt_hlo_real(tt_hlo *h, tt_node *x); /* real input gives x itself */
tt_node *tt_hlo_imag(tt_hlo *h, tt_node *x); /* real input gives zeros */
tt_node *tt_hlo_reduce_precision(tt_hlo *h, tt_node *x, int exponent_bits, int mantissa_bits);
tt_node *tt_hlo_optimization_barrier(tt_hlo *h, tt_node *x);
/* An equal value of which XLA does not see how it was made, or x itself where no harm is known to
 * come of that. XLA computes x / y / z as x / (y * z), x / exp(y) as x * exp(-y), log(pow(x, y)) as
 * y * log(x), and the like: finite where the steps are not, or the other way round. */
tt_node *tt_hlo_seal(tt_hlo *h, tt_node *x);

/* -- Shape -- (each returns x itself when nothing would change) */
tt_node *tt_hlo_reshape(tt_hlo *h, tt_node *x, int rank, const int64_t *dims);
tt_node *tt_hlo_transpose(tt_hlo *h, tt_node *x, const int *perm); /* result dim i = x's perm[i] */
/* What x has with its dims permuted so; NULL if it is not known to have it. */
tt_node *tt_hlo_permuted_from(const tt_node *x, const int *perm);
/* The matrix, or matrices in a batch, of which x is the transpose; NULL likewise. */
tt_node *tt_hlo_transposed_from(const tt_node *x);
/* x's dim i becomes result dim map[i]; x's dims are equal to the result's there, or 1. */
tt_node *tt_hlo_broadcast(tt_hlo *h, tt_node *x, const int *map, int rank, const int64_t *dims);
/* NumPy rules: aligned at the last dim. */
tt_node *tt_hlo_broadcast_to(tt_hlo *h, tt_node *x, int rank, const int64_t *dims);
tt_node *tt_hlo_slice(tt_hlo *h, tt_node *x, const int64_t *start, const int64_t *limit,
                      const int64_t *step /* NULL: 1 */);
tt_node *tt_hlo_slice_dim(tt_hlo *h, tt_node *x, int dim, int64_t start, int64_t limit,
                          int64_t step);
tt_node *tt_hlo_dynamic_slice(tt_hlo *h, tt_node *x, tt_node *const *starts, const int64_t *sizes);
tt_node *tt_hlo_dynamic_update_slice(tt_hlo *h, tt_node *x, tt_node *update,
                                     tt_node *const *starts);
/* Like dynamic_update_slice with known starts. */
tt_node *tt_hlo_update_slice(tt_hlo *h, tt_node *x, tt_node *update, const int64_t *starts);
tt_node *tt_hlo_concatenate(tt_hlo *h, tt_node *const *xs, int count, int dim);
/* low/high may be negative (crop); interior NULL means 0. `value` is rank 0. */
tt_node *tt_hlo_pad(tt_hlo *h, tt_node *x, tt_node *value, const int64_t *low, const int64_t *high,
                    const int64_t *interior);
tt_node *tt_hlo_reverse(tt_hlo *h, tt_node *x, const int *dims, int count);

/* -- Reductions -- */
typedef enum tt_reducer { TT_SUM, TT_PROD, TT_MAX, TT_MIN, TT_AND, TT_OR } tt_reducer;
/* The neutral element, rank 0. */
tt_node *tt_hlo_identity(tt_hlo *h, tt_reducer reducer, tt_dtype dtype);
/* Reduces `dims` away; starts from the identity. */
tt_node *tt_hlo_reduce(tt_hlo *h, tt_reducer reducer, tt_node *x, const int *dims, int count);
/* Reduces every dim away: rank 0. */
tt_node *tt_hlo_reduce_all(tt_hlo *h, tt_reducer reducer, tt_node *x);
/* A region's body: `args` has 2n nodes (n accumulators, then n elements); writes n results. What it
 * builds goes into the region. It may use its arguments, what it builds itself, and constants from
 * outside (they are copied in); anything else from outside only in tt_hlo_while and tt_hlo_if. */
typedef void (*tt_body)(tt_hlo *h, tt_node *const *args, tt_node **results, void *user);
void tt_hlo_reduce_n(tt_hlo *h, int n, tt_node *const *xs, tt_node *const *inits, const int *dims,
                     int count, tt_body body, void *user, tt_node **results);
/* Windows over every dim of x; NULL for strides, base_dilation, dilation means 1; padding is
 * low,high per dim. */
typedef struct tt_window {
  const int64_t *size, *stride, *base_dilation, *dilation, *padding /* [rank][2], NULL: 0 */;
} tt_window;
tt_node *tt_hlo_reduce_window(tt_hlo *h, tt_reducer reducer, tt_node *x, const tt_window *window);
void tt_hlo_reduce_window_n(tt_hlo *h, int n, tt_node *const *xs, tt_node *const *inits,
                            const tt_window *window, tt_body body, void *user, tt_node **results);

/* -- Linear algebra -- */
tt_node *tt_hlo_dot_general(tt_hlo *h, tt_node *a, tt_node *b, const int *batch_a,
                            const int *batch_b, int batch, const int *contract_a,
                            const int *contract_b, int contract, tt_dtype result);
/* Input [N, C, spatial...], kernel [O, C/groups, spatial...], result [N, O, spatial...] unless the
 * dimension numbers say otherwise (each names, for StableHLO's order, the dims of that operand). */
typedef struct tt_conv {
  int spatial;                                         /* number of spatial dims */
  const int64_t *stride, *lhs_dilation, *rhs_dilation; /* [spatial]; NULL: 1 */
  const int64_t *padding;                              /* [spatial][2]; NULL: 0; may be negative */
  const bool *reverse;                                 /* [spatial]; NULL: false */
  int64_t feature_groups, batch_groups;                /* 0 means 1 */
  /* [2 + spatial]; input and output: batch, feature, spatial..; kernel: out, in, spatial..;
   * NULL: 0, 1, 2, .. */
  const int *input, *kernel, *output;
} tt_conv;
tt_node *tt_hlo_convolution(tt_hlo *h, tt_node *input, tt_node *kernel, const tt_conv *conv,
                            tt_dtype result);
tt_node *tt_hlo_cholesky(tt_hlo *h, tt_node *a, bool lower);
tt_node *tt_hlo_triangular_solve(tt_hlo *h, tt_node *a, tt_node *b, bool left, bool lower,
                                 bool unit_diagonal,
                                 int transpose /* 0 no, 1 transpose, 2 adjoint */);
typedef enum tt_fft { TT_FFT, TT_IFFT, TT_RFFT, TT_IRFFT } tt_fft;
tt_node *tt_hlo_fft(tt_hlo *h, tt_node *x, tt_fft type, const int64_t *lengths, int count);

/* -- Indexing: StableHLO's gather and scatter, dimension numbers spelled out -- */
typedef struct tt_gather {
  const int *offset_dims, *collapsed_dims, *operand_batch, *index_batch, *start_map;
  int offset_count, collapsed_count, batch_count, start_count;
  int index_vector_dim;
  const int64_t *slice_sizes;
} tt_gather;
tt_node *tt_hlo_gather(tt_hlo *h, tt_node *x, tt_node *indices, const tt_gather *dims);
typedef struct tt_scatter {
  const int *window_dims, *inserted_dims, *operand_batch, *index_batch, *scatter_map;
  int window_count, inserted_count, batch_count, scatter_count;
  int index_vector_dim;
  bool unique;
} tt_scatter;
typedef enum tt_combiner { TT_SET, TT_ADD, TT_MUL, TT_SMAX, TT_SMIN } tt_combiner;
/* Out-of-range updates are dropped. */
tt_node *tt_hlo_scatter(tt_hlo *h, tt_node *x, tt_node *indices, tt_node *updates,
                        const tt_scatter *dims, tt_combiner combiner);
/* x[idx] along `dim` for an integer tensor idx of any rank: dims of idx replace `dim`. */
tt_node *tt_hlo_take(tt_hlo *h, tt_node *x, tt_node *idx, int dim);
/* torch.gather: idx has x's rank; result has idx's dims. */
tt_node *tt_hlo_take_along(tt_hlo *h, tt_node *x, tt_node *idx, int dim);

/* Sorts the operands together along `dim`; the body gets 2n rank-0 nodes (a0, b0, a1, b1, ...) and
 * writes one bool: whether a comes before b. */
void tt_hlo_sort(tt_hlo *h, int n, tt_node *const *xs, int dim, bool stable, tt_body before,
                 void *user, tt_node **results);
tt_node *tt_hlo_select_and_scatter(tt_hlo *h, tt_node *x, tt_node *source, const tt_window *window,
                                   bool max);

/* -- Between devices -- */
/* Which devices a collective works among: rows of `size` devices' numbers, each a group in the
 * order of its ranks. `x` is of rank 1; of those that are shared out, dim 0 is a multiple of the
 * size. */
typedef struct tt_groups {
  const int64_t *devices; /* [count] */
  int count, size;
} tt_groups;
tt_node *tt_hlo_all_reduce(tt_hlo *h, tt_reducer reducer, tt_node *x, const tt_groups *groups);
tt_node *tt_hlo_all_gather(tt_hlo *h, tt_node *x, const tt_groups *groups);
tt_node *tt_hlo_reduce_scatter(tt_hlo *h, tt_reducer reducer, tt_node *x, const tt_groups *groups);
tt_node *tt_hlo_all_to_all(tt_hlo *h, tt_node *x, const tt_groups *groups);
/* The devices that these name, ascending: the program runs on all of them at once. All collectives
 * of a program name the same ones. NULL: it has none, and runs on any device. */
const int64_t *tt_hlo_devices(const tt_hlo *h, int *count);

/* -- Control and calls -- */
/* `cond` gets n nodes and writes one bool; `body` gets n nodes and writes n. Both may use values
 * from outside. */
void tt_hlo_while(tt_hlo *h, int n, tt_node *const *inits, tt_body cond, tt_body body, void *user,
                  tt_node **results);
/* The same while the first node, a whole number of rank 0, is less than `end`: it grows by one each
 * time, for which `body` need not care. */
void tt_hlo_count_up(tt_hlo *h, int64_t end, int n, tt_node *const *inits, tt_body body, void *user,
                     tt_node **results);
/* What one of the bodies writes: n values of these types. `pred` is a rank-0 bool. The bodies get
 * no nodes, and may use values from outside. */
void tt_hlo_if(tt_hlo *h, tt_node *pred, int n, const tt_type *types, tt_body on_true,
               tt_body on_false, void *user, tt_node **results);
/* A typed-FFI custom call; `config` is the attribute dictionary's text, e.g. "k = 7 : i32" (NULL:
 * empty). A config in quotes is a string, for functions that XLA itself expands (Eigh). One without
 * results is kept for its side effect; others are dropped when unused. */
void tt_hlo_custom_call(tt_hlo *h, const char *target, const char *config, int n,
                        tt_node *const *xs, int results_count, const tt_type *types,
                        tt_node **results);
/* A result that a custom call finds an operand of its type in the memory of, where it may write
 * over that one. */
typedef struct tt_over {
  int operand, result;
} tt_over;
/* The same for one with such results. */
void tt_hlo_custom_call_over(tt_hlo *h, const char *target, const char *config, int n,
                             tt_node *const *xs, int results_count, const tt_type *types,
                             const tt_over *over, int over_count, tt_node **results);

#endif
