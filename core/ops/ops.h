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
  const char *name; /* "add.Tensor"; "relu" for a default overload; "torchvision::roi_align" */
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

/* Whether an operator costs a compiler and a device little, and becomes one kernel with others that
 * do: pointwise ones, on lists too, copies, and what makes values of a number. */
bool tt_op_is_light(const tt_op_row *row);

/* Whether a kernel of the host's may stand in for the row's lowering (ops/order.h): it writes
 * where it should whatever it is given, draws the same numbers, and computes what the row says. So
 * it is for most classes; ORDERED entries beside the rows tell where it is otherwise. */
bool tt_op_orders(const tt_op_row *row);

/* An integer argument that says where in one dimension (the argument before it) of the argument
 * `whole` the others are: an index, or a start with an end behind it. It may be a run-time number,
 * which then is not negative. PLACE entries stand beside the rows. */
typedef struct tt_op_place {
  const char *name;        /* of the row */
  const char *start, *end; /* the arguments' names; end NULL: an index */
  int whole;
} tt_op_place;
const tt_op_place *tt_op_place_of(const char *name); /* NULL: the row has none */
/* An end that is no user's: of as many elements from the start on as count, which is a length. */
#define TT_AS_MANY (INT64_MAX - 1)

/* Sizes of an argument's dims that may be run-time lengths, since no result's type depends on them.
 * The lowering then finds a greater size (a bound) there, and behind the length what `neutral`
 * leaves out: where that is not enough, ops/lower.h has the masks and counts. REDUCES,
 * REDUCES_LISTED and CONTRACTS entries stand beside the rows. */
typedef struct tt_op_length {
  const char *name; /* of the row */
  tt_reducer neutral;
  int reduced;        /* which argument lists the dims of argument 0 that are reduced (none: all of
                         them); 0: all are; -1: `same` has the dims */
  bool empty_is_none; /* of a list of no dims */
  struct {
    int arg, dim; /* counted from the end */
  } same[2];      /* of one size */
} tt_op_length;
const tt_op_length *tt_op_length_of(const char *name); /* NULL: the row has none */

/* Which dims of a row's tensors may be longer than what counts of them (call/bounded.h), and which
 * results are so along which dims. A rule names the dims of the tensors among the arguments, by
 * position, then those of the results: "ij,jk->ik". Dims with a letter have one size, or 1; those
 * of a letter that the first result lacks are summed over, and padding there reads as what the
 * row's tt_op_length leaves out. A capital letter is a dim that may not be longer; "..." are any
 * further dims, aligned at their ends, "!" any at the end that may not be longer, "*" a tensor that
 * is broadcast to the result. "%1": the first result is as the first tensor, and along the dims
 * that argument 1 lists ("%": all) padding reads as what `neutral` leaves out. "<1": likewise, but
 * there elements depend on those in front, or change places, so that what counts must be in front;
 * a result that is shorter there counts altogether. "^1": likewise, but the dims that are listed
 * may not be longer. "#1": the result has the sizes that argument 1 lists ("##1": twice that one),
 * and nothing is read. "?1": likewise, and the operands are a mask, or what it picks elements of
 * and the mask. "@1": it has them, and along all dims but the one that the argument behind these
 * names, it is as argument 0, which may lack that dim. "cat", "stack", "repeat", "pad", "index",
 * "put" (at indices), "select", "add" (of slices), "gather", "scatter" and "masked" (writes where a
 * mask is true) stand for what these do. "": all tensors are broadcast to the result. Pointwise
 * rows have that one, and rows with a tt_op_length that reduce their own, without an entry. ALONG
 * entries stand beside the rows.
 */
typedef struct tt_op_along {
  const char *name, *rule; /* of the row; NULL: it has no entry */
  tt_reducer neutral;
} tt_op_along;
/* The neutral of a row for which no padding is neutral, as it counts: without lengths no padding.
 */
#define TT_BY_COUNT TT_AND
const tt_op_along *tt_op_along_of(const char *name); /* never NULL */
/* Which argument lists the result's sizes, by its rule ("#1", "?1", "@1"); -1: it is not said. */
int tt_op_sizes(const tt_op_row *row);
/* Whether the row has a rule. */
bool tt_op_spreads(const tt_op_row *row);
/* Whether it says that all tensors are broadcast to the result. */
bool tt_op_broadcasts(const tt_op_row *row);

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
  TT_ARG_SCALAR,  /* a number known only at run time: `first` numbers it among the call's numbers */
  TT_ARG_SCALARS, /* `count` run-time numbers from `first` on (ScalarList), or `equal` ones */
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
  bool equal;     /* SCALARS: all are the number `first` */
  bool place;     /* INT: see tt_op_place */
  tt_dtype dtype; /* SCALAR(S), and INT/FLOAT/COMPLEX standing for a Scalar: its own dtype (BOOL,
                     I64, F64, C128); an INT standing for a dtype argument: that dtype */
  int64_t i;
  double f;
  const int64_t *ints;
  const double *floats;
  const bool *present;
  const char *text;
} tt_arg;

#define TT_MAX_RESULTS 8192

enum { TT_NO_TENSOR = -1 };
/* How many elements along a tensor's dim there are (of no tensor: the result's); the others are
 * padding. Of the dim's `outer` x bound x `inner` elements those count whose middle digit is below
 * the value. */
typedef struct tt_length {
  int tensor, dim;
  int64_t outer, bound, inner;
  tt_node *value; /* rank-0 I64, at least 1 */
} tt_length;
enum { TT_MOST_DRAWN_ALONG = 4 };

/* What a lowering is given. Lowerings use the functions of ops/lower.h. */
struct tt_lower {
  tt_hlo *h;
  const tt_op_row *row;
  const tt_arg *args;
  int arg_count;
  tt_node *const *tensors;  /* the call's tensors as read through their views */
  tt_node *const *scalars;  /* the call's run-time numbers, rank 0, F64 / F32, I64, or BOOL */
  const tt_length *lengths; /* known only at run time */
  int length_count;
  tt_dtype result_type;      /* PyTorch's result_type of all tensors and numbers */
  tt_dtype fractions;        /* of whole operands: PyTorch's default dtype, F32 if INVALID */
  const tt_type *meta_types; /* the results' types by PyTorch's Meta kernel; NULL if unknown */
  int meta_count;
  tt_node *seed, *offset; /* TT_RANDOM: rank-0 I64 */
  tt_node *words; /* the packed numbers of all, of which a row that holds other calls hands on those
                     from `word_at` */
  int word_at;
  int64_t drawn; /* TT_RANDOM: elements that it draws for, if others than result 0's */
  const tt_length *drawn_along[TT_MOST_DRAWN_ALONG]; /* bounds among what these are a product of */
  int drawn_along_count;
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

/* Blocks of four words by which one call of a TT_RANDOM row moves the generator's offset: the same
 * in every mode and for every dtype. `numel` is the number of elements that it draws for. */
int64_t tt_philox_blocks(const tt_op_row *row, int64_t numel);

/* Of bytes as they are: result 0 begins with the operand's, and goes on with zeros. */
void tt_lower_resize(tt_lower *cx);

/* x, of tensor number `tensor`'s dims, with what the reducer leaves out where there is padding. */
tt_node *tt_pad_tensor(tt_lower *cx, int tensor, tt_node *x, tt_reducer neutral);
/* x where a place along `dim` is no padding; elsewhere `otherwise`, of rank 0 or x's dims. */
tt_node *tt_where_counted(tt_hlo *h, const tt_length *length, int dim, tt_node *x,
                          tt_node *otherwise);

#endif
