/* A call: one operator specialised for the types and views of its operands and for its static
 * arguments. */
#ifndef TT_CALL_H
#define TT_CALL_H

#include "base/atomic.h"
#include "call/type.h"
#include "call/view.h"
#include "ops/ops.h"

struct tt_program; /* of a room above, which keeps a call's own program with it */
struct tt_call_table;
struct tt_element;

/* A dim of a view that runs along a bounded dim of a bounded value (call/bounded.h), all of it: of
 * its `outer` x bound x `inner` elements those count whose middle digit is below the length, which
 * the call's number `scalar` (I64) tells. */
typedef struct tt_mark {
  int dim, scalar;
  int64_t outer, inner;
} tt_mark;
typedef struct tt_marks {
  int count;
  tt_mark of[TT_MOST_ALONG]; /* in the order of the value's bounded dims */
} tt_marks;
static inline int tt_marks_count(const tt_marks *marks) {
  return marks->count < TT_MOST_ALONG ? marks->count : TT_MOST_ALONG; /* which analysers know */
}
/* Of a view's dim; NULL: it has none. */
static inline const tt_mark *tt_mark_of(const tt_marks *marks, int dim) {
  for (int i = 0; i < tt_marks_count(marks); i++)
    if (marks->of[i].dim == dim) return &marks->of[i];
  return NULL;
}

typedef struct tt_call_tensor {
  const tt_type *storage;
  tt_view view;
  bool undefined; /* nothing was written to the storage: reads as zeros */
  int same_as;    /* an earlier tensor of the call with the same storage, or -1 */
  bool moves;     /* scalar `offset_scalar` (I64) is its offset; the view's own is an example */
  int offset_scalar;
  tt_marks marks;
  int lengths[TT_MOST_ALONG]; /* in a bounded value, whose type `storage` is: its lengths' scalars
                               */
  int more_dim;
  int64_t more; /* elements that the view sees the storage longer by along that dim: anything */
  bool partly;  /* of what the view sees only what counts is written */
} tt_call_tensor;

/* Scalar `scalar` (I64) is how many elements along `dim` there are, whose digits are as a mark's;
 * of TT_NO_TENSOR, along the first result's. */
typedef struct tt_call_length {
  int tensor, dim, scalar;
  int64_t outer, inner;
  tt_motion motion; /* of the view, if that moves */
} tt_call_length;

typedef struct tt_call_result {
  bool defined;           /* false: the lowering left it out (an undefined tensor) */
  int target;             /* the tensor it is written to, or -1 for a new storage */
  tt_view view;           /* of the new storage (dtype, sizes, strides); unused for targets */
  const tt_type *storage; /* the storage's type afterwards; interned */
  int over;               /* the input whose value it replaces by one of the same type, or -1 */
  tt_marks marks;         /* of the view, or the target's, if the value is a bounded one */
  int length_count;       /* of a bounded value's bounded dims */
  int length_words[TT_MOST_ALONG]; /* where their lengths are among the packed numbers */
} tt_call_result;

/* What the caller knows when a key is new. Borrowed; tt_call_create copies what it keeps. */
typedef struct tt_call_spec {
  const tt_op_row *row;
  const char *name; /* "aten::add_.Tensor" */
  const tt_arg *args;
  int arg_count;
  const tt_call_tensor *tensors;
  int tensor_count;
  const tt_dtype *scalars; /* dtypes of the run-time numbers: F64, F32, I64, BOOL */
  int scalar_count;        /* for TT_RANDOM the last two are the seed and the offset */
  const tt_call_length *lengths;
  int length_count;
  tt_marks sized;   /* of the result, where an argument lists sizes that are lengths */
  int64_t bound;    /* cat, pad: what the result is given room for along their dim; 0: as counts */
  int bound_scalar; /* then the number that is its length */
  tt_dtype result_type, fractions; /* see tt_lower */
  const tt_call_result *results;   /* view filled in where meta_known */
  int result_count;
  bool meta_known;        /* else the lowering's types and count rule (up to result_count) */
  bool checks;            /* Debug */
  tt_precision precision; /* of its products, if tt_op_multiplies */
  uint32_t site;          /* the Python line that made it first; base/site.h */
} tt_call_spec;

/* How many elements a random call draws for, where each bound among them counts as the length that
 * the packed numbers have at `word`. */
typedef struct tt_call_draws {
  int64_t numel;
  struct {
    int64_t bound;
    int word;
  } along[TT_MOST_DRAWN_ALONG];
  int along_count;
} tt_call_draws;

typedef struct tt_call {
  const char *name;
  const tt_op_row *row;
  int result_count, output_count; /* outputs: defined results */
  int word_count;                 /* 32-bit words of packed numbers */
  tt_call_result *results;
  bool zeros;                  /* all that it does is to make or write a few zeros */
  int *inputs;                 /* tensors whose storages the program reads, in order */
  const tt_type **input_types; /* [input_count] of these storages */
  bool *reads; /* [input_count] whether anything depends on what the storage held before */
  int input_count;
  tt_call_draws draws; /* TT_RANDOM */
  uint64_t hash;       /* of what it computes; equal in every process */
  tt_call_spec spec;   /* the call's own copy */
  tt_arena arena;
  const char *why;                   /* it was new: a sentence */
  const tt_target *target;           /* that it was specialised for */
  struct tt_call_table *table;       /* that it belongs to */
  const struct tt_element *elements; /* see element.h; NULL until they are asked for */
  int element_kinds;                 /* how many calls they are, equal ones counted once */
  TT_ATOMIC(const void *) kernel;    /* see ordered.h */
  struct tt_program *program; /* the call alone, for that target, or NULL; accessed atomically */
} tt_call;

/* Blocks of random words that it takes with these packed numbers; see tt_philox_blocks. */
int64_t tt_call_draw_blocks(const tt_call *call, const uint32_t *words);

/* Words that a number takes in the packed vector. */
static inline int tt_scalar_words(tt_dtype dtype) {
  return dtype == TT_F32 || dtype == TT_BOOL ? 1 : 2;
}

#endif
