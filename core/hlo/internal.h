/* Inside the hlo room: the instruction, its op table, and what the builder files share. */
#ifndef TT_HLO_INTERNAL_H
#define TT_HLO_INTERNAL_H

#include "hlo/hlo.h"

/* Limits on what grows. */
#define TT_HLO_MAX_INSTRS 1000000
#define TT_HLO_MAX_PARAMS 65536
#define TT_HLO_MAX_DEPTH 32          /* of nested regions */
#define TT_HLO_MAX_CONSTANT 16777216 /* elements of a list constant */
#define TT_HLO_MAX_KEY 4096          /* bytes; longer instructions are not numbered */

/* Ops that are not plain element-wise; their numbers follow tt_hlo_op's. */
/* clang-format off */
#define TT_HLO_OTHERS(X)                                                                           \
  X(compare) X(select) X(clamp) X(is_finite) X(convert) X(bitcast_convert) X(complex) X(real)      \
  X(imag) X(reduce_precision) X(optimization_barrier) X(constant) X(iota) X(reshape) X(transpose)  \
  X(broadcast_in_dim) X(slice) X(dynamic_slice) X(dynamic_update_slice) X(concatenate) X(pad)      \
  X(reverse) X(reduce) X(reduce_window) X(select_and_scatter) X(dot_general) X(convolution)        \
  X(cholesky) X(triangular_solve) X(fft) X(gather) X(scatter) X(sort) X(while) X(if)               \
  X(custom_call) X(all_reduce) X(all_gather) X(reduce_scatter) X(all_to_all)

typedef enum tt_opcode {
  TT_OPCODE_BEFORE = TT_HLO_ELEMENTWISE_COUNT - 1,
#define X(name) TT_OPCODE_##name,
  TT_HLO_OTHERS(X)
#undef X
  TT_OPCODE_COUNT
} tt_opcode;
/* clang-format on */

typedef enum tt_attr_kind {
  TT_ATTR_TEXT,   /* text, as it is */
  TT_ATTR_I64,    /* value : i64 */
  TT_ATTR_I32,    /* value : i32 */
  TT_ATTR_BOOL,   /* true / false */
  TT_ATTR_I64S,   /* array<i64: ..> */
  TT_ATTR_BOOLS,  /* array<i1: ..> */
  TT_ATTR_ROWS,   /* dense<[[a, b], ..]> : tensor<count/value x value x i64> */
  TT_ATTR_STRUCT, /* #text field = .., ..>; a list field is left out when empty */
  TT_ATTR_LIST,   /* a field: [a, b] */
  TT_ATTR_PLAIN   /* a field: value */
} tt_attr_kind;

typedef struct tt_attr {
  const char *name; /* static storage */
  tt_attr_kind kind;
  int count; /* of values or fields */
  int64_t value;
  const int64_t *values;
  const char *text;
  const struct tt_attr *fields;
} tt_attr;

typedef struct tt_block tt_block;
typedef struct tt_instr tt_instr;

/* Every tt_node of a builder is the first member of one of these. */
typedef struct tt_hlo_value {
  tt_node node;
  tt_block *block; /* where it is defined; NULL only for the poison node */
  int number;      /* SSA number in the printed text */
  bool live;       /* a parameter: a result needs it */
} tt_hlo_value;

/* Why a rule objects; `show` prints types into its slots. */
typedef struct tt_why {
  char text[320];
  char slots[4][160];
  int next;
  bool memory; /* it does not object: memory is out */
} tt_why;

/* Infers the result types: `out` holds the builder's proposal, and leaves with the types that the
 * operands and attributes imply. false and a reason when they do not fit. */
typedef bool (*tt_rule)(const tt_instr *in, tt_type *out, tt_why *why);

struct tt_instr {
  int op; /* tt_hlo_op or tt_opcode */
  tt_rule rule;
  int operand_count, attr_count, region_count, result_count;
  tt_node *const *operands;
  const tt_attr *attrs;
  tt_block *const *regions;
  tt_hlo_value *results;
  int number; /* order of creation */
  bool live;
  tt_instr *prev, *next; /* in the block */
};

struct tt_block {
  tt_hlo *owner;
  tt_block *outer;
  bool captures; /* values of `outer` may be used inside */
  int arg_count, yield_count;
  tt_hlo_value *args;
  tt_node *const *yields;
  tt_instr *first, *last;
};

typedef struct tt_donation {
  int param, result;
} tt_donation;

struct tt_hlo {
  tt_arena arena;
  tt_status error;
  const char *where;
  tt_hlo_value poison;
  tt_block *main, *current;
  tt_hlo_value **params;
  size_t param_count, param_capacity;
  tt_donation *donations;
  size_t donation_count, donation_capacity;
  int next_id, instr_count, depth;
  int64_t largest;
  bool convolves, chooses;
  tt_precision precision;
  const int64_t *devices; /* ascending */
  int device_count;
  tt_intern numbered; /* value numbering: what was built already, by content */
  tt_text key;        /* scratch for it */
};

/* A binary operation of operands of one type, as the op table names it. */
tt_node *tt_hlo_combine(tt_hlo *h, tt_hlo_op op, tt_node *a, tt_node *b);

bool tt_hlo_bad(tt_why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool tt_hlo_bad_memory(tt_why *why);
const char *tt_hlo_show(tt_why *why, const tt_type *type);

/* dtype classes */
enum {
  TT_CLS_B = 1 << TT_KIND_BOOL,
  TT_CLS_S = 1 << TT_KIND_SIGNED,
  TT_CLS_U = 1 << TT_KIND_UNSIGNED,
  TT_CLS_F = 1 << TT_KIND_FLOAT,
  TT_CLS_C = 1 << TT_KIND_COMPLEX,
  TT_CLS_I = TT_CLS_S | TT_CLS_U,
  TT_CLS_ANY = TT_CLS_B | TT_CLS_I | TT_CLS_F | TT_CLS_C
};

typedef struct tt_op_info {
  const char *name; /* MLIR's: "stablehlo.add" */
  int min, max;     /* operands; max < 0: any number */
  int classes[3];   /* of operand 0, 1, and all later ones */
  int regions;
} tt_op_info;

const tt_op_info *tt_hlo_info(int op);
/* The op table's checks and the instruction's own rule. */
bool tt_hlo_check(const tt_instr *in, tt_type *out, tt_why *why);
/* Whether `node` may be an operand in `block`. */
bool tt_hlo_visible(const tt_block *block, const tt_node *node);

/* -- Building -- */
/* Checks the draft of one result, infers its type (`type` is the proposal), and appends a copy of
 * it to the current block. Never NULL. */
tt_node *tt_hlo_emit1(tt_hlo *h, const tt_instr *draft, tt_type type);
/* The same for `result_count` results. */
void tt_hlo_emit_all(tt_hlo *h, const tt_instr *draft, tt_type *types, tt_node **results);
tt_node *tt_hlo_poison(tt_hlo *h);
void tt_hlo_poison_all(tt_hlo *h, tt_node **results, int count);
/* Builds a region of an `op` to come by calling `body`; NULL on failure. */
tt_block *tt_hlo_region(tt_hlo *h, int op, int arg_count, const tt_type *args, int yield_count,
                        tt_body body, void *user);
/* The region of a reducer over rank-0 values. */
tt_block *tt_hlo_reducer_region(tt_hlo *h, int op, tt_reducer reducer, tt_dtype dtype);
/* Arena memory; NULL and a sticky error when it is out. */
void *tt_hlo_alloc(tt_hlo *h, size_t count, size_t size);
/* A copy in the arena; the same. */
const void *tt_hlo_copied(tt_hlo *h, const void *data, size_t size);
/* Makes a failed allocation the sticky error. */
void tt_hlo_fail_memory(tt_hlo *h);
/* `values` as int64 in the arena. */
const int64_t *tt_hlo_widen(tt_hlo *h, const int *values, int count);
/* `values`, or `count` copies of `otherwise` when it is NULL. */
const int64_t *tt_hlo_filled(tt_hlo *h, const int64_t *values, int count, int64_t otherwise);
/* Whether the builder has not failed and the nodes can be operands of `op`: else a sticky error. */
bool tt_hlo_usable(tt_hlo *h, int op, tt_node *const *nodes, int count);
/* Checks a rank against 0..TT_MAX_RANK. */
bool tt_hlo_rank_ok(tt_hlo *h, int rank, const char *what);
/* Appends precision_config if it is not the default and says something about the operand, which is
 * of single precision; the new count. */
int tt_hlo_add_precision(const tt_hlo *h, const tt_node *operand, tt_attr *attrs, int count);
/* The same splat constant with another shape; NULL if x is not a splat constant. */
tt_node *tt_hlo_splat_as(tt_hlo *h, const tt_node *x, const tt_type *type);

/* A draft of one instruction, which rule_<name> beside it checks: TT_DRAFT(name, attrs, attr_count,
 * operands..). */
#define TT_DRAFT(name, attrs_, attrs_count, ...)                                                   \
  &(const tt_instr){.op = TT_OPCODE_##name,                                                        \
                    .rule = rule_##name,                                                           \
                    .operands = (tt_node *[]){__VA_ARGS__},                                        \
                    .operand_count =                                                               \
                        (int)(sizeof((tt_node *[]){__VA_ARGS__}) / sizeof(tt_node *)),             \
                    .attrs = (attrs_),                                                             \
                    .attr_count = (attrs_count)}
/* Returns poison from the calling builder unless all the operands are usable: TT_NEED(h, name,
 * operands..). */
#define TT_NEED(h, name, ...)                                                                      \
  do {                                                                                             \
    tt_node *need_[] = {__VA_ARGS__};                                                              \
    if (!tt_hlo_usable(h, TT_OPCODE_##name, need_, (int)(sizeof need_ / sizeof *need_)))           \
      return tt_hlo_poison(h);                                                                     \
  } while (0)

static inline tt_attr tt_attr_text(const char *name, const char *text) {
  return (tt_attr){.name = name, .kind = TT_ATTR_TEXT, .text = text};
}
static inline tt_attr tt_attr_i64(const char *name, int64_t value) {
  return (tt_attr){.name = name, .kind = TT_ATTR_I64, .value = value};
}
static inline tt_attr tt_attr_i32(const char *name, int value) {
  return (tt_attr){.name = name, .kind = TT_ATTR_I32, .value = value};
}
static inline tt_attr tt_attr_bool(const char *name, bool value) {
  return (tt_attr){.name = name, .kind = TT_ATTR_BOOL, .value = value};
}
static inline tt_attr tt_attr_plain(const char *name, int64_t value) {
  return (tt_attr){.name = name, .kind = TT_ATTR_PLAIN, .value = value};
}
static inline tt_attr tt_attr_values(const char *name, tt_attr_kind kind, const int64_t *values,
                                     int count) {
  return (tt_attr){.name = name, .kind = kind, .values = values, .count = count};
}
static inline tt_attr tt_attr_i64s(const char *name, const int64_t *values, int count) {
  return tt_attr_values(name, TT_ATTR_I64S, values, count);
}
/* Rows of `width` values, in one list. */
static inline tt_attr tt_attr_rows(const char *name, const int64_t *values, int count, int width) {
  tt_attr attr = tt_attr_values(name, TT_ATTR_ROWS, values, count);
  attr.value = width;
  return attr;
}
static inline tt_attr tt_attr_list(tt_hlo *h, const char *name, const int *values, int count) {
  return tt_attr_values(name, TT_ATTR_LIST, tt_hlo_widen(h, values, count), count);
}
static inline tt_attr tt_attr_struct(const char *name, const char *text, const tt_attr *fields,
                                     int count) {
  return (tt_attr){
      .name = name, .kind = TT_ATTR_STRUCT, .text = text, .fields = fields, .count = count};
}

/* -- For rules -- */
const tt_type *tt_operand_type(const tt_instr *in, int i);
/* NULL if absent. */
const tt_attr *tt_attr_find(const tt_instr *in, const char *name);
const tt_attr *tt_attr_field(const tt_attr *attr, const char *name);
/* `attr` (NULL is an objection) lists `count` values. */
bool tt_attr_sized(const tt_attr *attr, int count, const char *name, tt_why *why);
/* Values are distinct and in 0..rank-1. */
bool tt_attr_dims(const tt_attr *attr, int rank, const char *name, tt_why *why);
bool tt_attr_has(const tt_attr *attr, int64_t value);
/* The number of windows over one dim; false on overflow or bad arguments. */
bool tt_window_count(int64_t dim, int64_t base_dilation, int64_t low, int64_t high, int64_t size,
                     int64_t dilation, int64_t stride, int64_t *out);
/* Region i takes these arguments and yields these types. */
bool tt_region_is(const tt_instr *in, int i, int args, const tt_type *arg_types, int yields,
                  const tt_type *yield_types, tt_why *why);

/* -- Printing -- */
void tt_attr_print(const tt_attr *attr, tt_text *text);
void tt_hlo_print(tt_hlo *h, tt_node *const *results, int count, tt_text *text);

#endif
