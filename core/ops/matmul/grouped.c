/* Products of matrices in groups. Where a group ends only the data tell, so a loop goes through
 * each group in blocks of one size: one program serves all routings, and groups without elements
 * cost nothing. */
#include "ops/lower.h"

typedef enum form {
  ROWS,      /* a group is rows of a, and has a matrix of b */
  COLUMNS,   /* a group is columns of b, and has a matrix of a */
  CONTRACTED /* a group is columns of a and rows of b, and makes a matrix */
} form;

/* Matrices, of which a transposed one is not moved: its last two dims are looked up. */
typedef struct operand {
  tt_node *x;
  int rows, columns; /* 0, 1 or 1, 0 */
} operand;

typedef struct grouped {
  form form;
  operand a, b;
  tt_node *starts, *ends;      /* [groups]: where each group is in the dim that is divided */
  int64_t groups, size, block; /* size: of that dim */
  tt_dtype dtype, wide;        /* of the result, and what products are added in */
  /* Of the group whose turn it is */
  tt_node *end;
  operand matrix;
} grouped;

enum { LEAST_BLOCK = 16, MOST_BLOCK = 256 };

/* Half a group of average size: a group's last block is mostly other groups' elements. */
static int64_t block_of(int64_t size, int64_t groups) {
  int64_t block = LEAST_BLOCK;
  while (block < MOST_BLOCK && 2 * block * groups < size) block *= 2;
  return block < size ? block : size;
}

static tt_node *number(tt_hlo *h, const grouped *p, int64_t value) {
  return tt_hlo_const_i(h, p->ends->type.dtype, value);
}

static operand operand_of(tt_node *x) {
  tt_node *other = tt_hlo_transposed_from(x);
  return other ? (operand){other, 1, 0} : (operand){x, 0, 1};
}

static tt_node *times(tt_hlo *h, const grouped *p, operand a, operand b, int batch) {
  return tt_hlo_dot_general(h, a.x, b.x, (const int[]){0}, (const int[]){0}, batch,
                            (const int[]){batch + a.columns}, (const int[]){batch + b.rows}, 1,
                            p->wide);
}

/* `count` of x's elements in `dim`, from `at` on. */
static tt_node *cut(tt_hlo *h, const grouped *p, tt_node *x, int dim, tt_node *at, int64_t count) {
  tt_node *starts[3] = {number(h, p, 0), number(h, p, 0), number(h, p, 0)};
  tt_type type = x->type;
  starts[dim] = at;
  type.dims[dim] = count;
  return tt_hlo_dynamic_slice(h, x, starts, type.dims);
}

static tt_node *element(tt_hlo *h, const grouped *p, tt_node *list, tt_node *at) {
  return tt_hlo_reshape(h, cut(h, p, list, 0, at, 1), 0, NULL);
}

static operand matrix(tt_hlo *h, const grouped *p, operand from, tt_node *at) {
  tt_node *one = cut(h, p, from.x, 0, at, 1);
  from.x = tt_hlo_reshape(h, one, 2, &from.x->type.dims[1]);
  return from;
}

static operand block(tt_hlo *h, const grouped *p, operand from, int dim, tt_node *at) {
  from.x = cut(h, p, from.x, dim, at, p->block);
  return from;
}

/* Where a block like x, whose first element in `dim` is `at`, has the group's elements from
 * `first` on. */
static tt_node *own(tt_hlo *h, const grouped *p, const tt_node *x, int dim, tt_node *at,
                    tt_node *first) {
  tt_type type = x->type;
  type.dtype = first->type.dtype;
  tt_node *place = tt_hlo_add(h, tt_hlo_iota(h, &type, dim), at);
  return tt_hlo_and(h, tt_hlo_compare(h, TT_GE, place, first),
                    tt_hlo_compare(h, TT_LT, place, p->end));
}

/* A block that would go over the end of all begins earlier. */
static tt_node *block_start(tt_hlo *h, const grouped *p, tt_node *first) {
  return tt_hlo_minimum(h, first, number(h, p, p->size - p->block));
}

static void any_elements(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  results[0] = tt_hlo_compare(h, TT_LT, args[0], ((const grouped *)user)->end);
}

/* (first element, result) */
static void fill_block(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const grouped *p = user;
  int dim = p->form == ROWS ? 0 : 1;
  tt_node *first = args[0], *at = block_start(h, p, first), *x, *starts[2];
  starts[dim] = at;
  starts[1 - dim] = number(h, p, 0);
  if (p->form == ROWS) x = times(h, p, block(h, p, p->a, p->a.rows, at), p->matrix, 0);
  else x = times(h, p, p->matrix, block(h, p, p->b, p->b.columns, at), 0);
  x = tt_hlo_convert(h, x, p->dtype);
  tt_node *others = cut(h, p, args[1], dim, at, p->block);
  x = tt_hlo_select(h, own(h, p, x, dim, at, first), x, others);
  results[0] = tt_hlo_add(h, first, number(h, p, p->block));
  results[1] = tt_hlo_dynamic_update_slice(h, args[1], x, starts);
}

static operand own_block(tt_hlo *h, const grouped *p, operand from, int dim, tt_node *first) {
  tt_node *at = block_start(h, p, first);
  from = block(h, p, from, dim, at);
  tt_node *others = tt_hlo_zeros(h, &from.x->type);
  from.x = tt_hlo_select(h, own(h, p, from.x, dim, at, first), from.x, others);
  return from;
}

/* (first element, sum). Other groups' elements become zeros in both operands: any may be NaN. */
static void add_block(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const grouped *p = user;
  operand a = own_block(h, p, p->a, p->a.columns, args[0]);
  operand b = own_block(h, p, p->b, p->b.rows, args[0]);
  results[0] = tt_hlo_add(h, args[0], number(h, p, p->block));
  results[1] = tt_hlo_add(h, args[1], times(h, p, a, b, 0));
}

/* The first group that is not empty, from `from` on. */
static tt_node *group_from(tt_hlo *h, const grouped *p, tt_node *from) {
  tt_node *group = tt_hlo_iota(h, &p->ends->type, 0);
  tt_node *right = tt_hlo_and(h, tt_hlo_compare(h, TT_GE, group, from),
                              tt_hlo_compare(h, TT_LT, p->starts, p->ends));
  return tt_hlo_reduce_all(h, TT_MIN, tt_hlo_select(h, right, group, number(h, p, p->groups)));
}

static void any_groups(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const grouped *p = user;
  results[0] = tt_hlo_compare(h, TT_LT, args[0], number(h, p, p->groups));
}

/* (group, result) */
static void next_group(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  grouped p = *(const grouped *)user;
  tt_node *group = args[0], *state[2] = {element(h, &p, p.starts, group), args[1]}, *done[2];
  p.end = element(h, &p, p.ends, group);
  if (p.form == CONTRACTED) {
    tt_type type = {p.wide, 2, {args[1]->type.dims[1], args[1]->type.dims[2]}};
    tt_node *starts[3] = {group, number(h, &p, 0), number(h, &p, 0)};
    state[1] = tt_hlo_zeros(h, &type);
    tt_hlo_while(h, 2, state, any_elements, add_block, &p, done);
    type = (tt_type){p.dtype, 3, {1, type.dims[0], type.dims[1]}};
    tt_node *sum = tt_hlo_reshape(h, tt_hlo_convert(h, done[1], p.dtype), 3, type.dims);
    results[1] = tt_hlo_dynamic_update_slice(h, args[1], sum, starts);
  } else {
    p.matrix = matrix(h, &p, p.form == ROWS ? p.b : p.a, group);
    tt_hlo_while(h, 2, state, any_elements, fill_block, &p, done);
    results[1] = done[1];
  }
  results[0] = group_from(h, &p, tt_hlo_add(h, group, number(h, &p, 1)));
}

/* Ends are read as PyTorch reads those of slices. */
static void divide(tt_lower *cx, grouped *p, tt_node *ends) {
  tt_hlo *h = cx->h;
  ends = tt_cast(cx, ends, p->size > INT32_MAX / 2 ? TT_I64 : TT_I32);
  tt_node *zero = tt_like(cx, ends, 0), *size = tt_hlo_const_i(h, ends->type.dtype, p->size);
  tt_node *negative = tt_hlo_compare(h, TT_LT, ends, zero);
  ends = tt_hlo_select(h, negative, tt_hlo_add(h, ends, size), ends);
  p->ends = tt_hlo_clamp(h, zero, ends, size);
  tt_node *parts[2] = {tt_hlo_zeros(h, &(tt_type){ends->type.dtype, 1, {1}}),
                       tt_hlo_slice_dim(h, p->ends, 0, 0, p->groups - 1, 1)};
  p->starts = tt_hlo_concatenate(h, parts, 2, 0);
}

/* (self, mat2, offs, bias, out_dtype). What is in no group is zero. */
void tt_lower_grouped_mm(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0), *y = tt_in(cx, 1);
  if (!tt_need_rank(cx, x, 2) || !tt_need_rank(cx, y, 2)) return;
  const int64_t *a = x->type.dims, *b = y->type.dims;
  tt_dtype dtype = x->type.dtype;
  grouped p = {
      .a = operand_of(x), .b = operand_of(y), .dtype = dtype, .wide = tt_compute_dtype(dtype)};
  if (!tt_has(cx, 2)) {
    tt_out_in(cx, 0, times(h, &p, p.a, p.b, 1), dtype);
    return;
  }
  tt_node *ends = tt_in(cx, 2);
  p.groups = tt_type_numel(&ends->type);
  tt_type result = {dtype, 3, {p.groups, a[0], b[1]}};
  if (y->type.rank == 3) {
    p.form = ROWS;
    p.size = a[0];
    result = (tt_type){dtype, 2, {a[0], b[2]}};
  } else if (x->type.rank == 3) {
    p.form = COLUMNS;
    p.size = b[1];
    result = (tt_type){dtype, 2, {a[1], b[1]}};
  } else {
    p.form = CONTRACTED;
    p.size = a[1] < b[0] ? a[1] : b[0];
  }
  tt_node *state[2] = {NULL, tt_hlo_zeros(h, &result)}, *done[2];
  if (tt_type_numel(&x->type) && tt_type_numel(&y->type) && p.groups) {
    p.block = block_of(p.size, p.groups);
    divide(cx, &p, ends);
    state[0] = group_from(h, &p, number(h, &p, 0));
    tt_hlo_while(h, 2, state, any_groups, next_group, &p, done);
    state[1] = done[1];
  }
  tt_out_as(cx, 0, state[1]);
}
