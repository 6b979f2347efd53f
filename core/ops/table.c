/* The table: every family's rows, in one array, found by name. */
#include "ops/ops.h"

#include "ops/foreach/foreach.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define ROW(name, cls, fn, param, statics, doc) void fn(tt_lower *cx);
#define EACH(name, base, doc)
#define LOOSE(name, value, why)
#define PLACE(name, start, end, whole)
#define REDUCES(name, dims, neutral)
#define REDUCES_LISTED(name, dims, neutral)
#define CONTRACTS(name, arg, dim, other, other_dim)
#define ALONG(name, rule, neutral)
#define ORDERED(name, is)
#include "ops/rows.def"
#undef ROW
#undef EACH

static void lower_each(tt_lower *cx) { tt_lower_each(cx, tt_op_find(cx->row->base)); }

static const tt_op_row rows[] = {
#define ROW(name, cls, fn, param, statics, doc) {name, cls, fn, param, NULL, statics, doc},
#define EACH(name, base, doc) {name, TT_FOREACH, lower_each, 0, base, "", doc},
#include "ops/rows.def"
#undef ROW
#undef EACH
#undef LOOSE
#undef PLACE
};

static tt_intern by_name = TT_INTERN_INIT;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void index_rows(void) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert(rows[i].lower && !tt_intern_find(&by_name, rows[i].name, strlen(rows[i].name)));
    tt_status status =
        tt_intern_add(&by_name, rows[i].name, strlen(rows[i].name), (void *)(uintptr_t)&rows[i]);
    tt_status_release(status);
  }
}

bool tt_op_multiplies(const tt_op_row *row) {
  return row->cls == TT_MATMUL || row->cls == TT_CONV || row->lower == tt_lower_attention;
}

bool tt_op_is_light(const tt_op_row *row) {
  if (row->cls == TT_FOREACH) row = tt_op_find(row->base);
  return row->cls == TT_POINTWISE || row->lower == tt_lower_full || row->lower == tt_lower_copy;
}

static const struct ordered {
  const char *name;
  bool is;
} ordered[] = {
#define ROW(name, cls, lower, param, statics, doc)
#define EACH(name, base, doc)
#define LOOSE(name, value, why)
#define PLACE(name, start, end, whole)
#undef ORDERED
#define ORDERED(name, is) {name, is},
#include "ops/rows.def"
#undef ROW
#undef EACH
#undef LOOSE
#undef PLACE
#undef ORDERED
#define ORDERED(name, is)
    {NULL, false}};

static bool class_orders(tt_op_class cls) {
  switch (cls) {
  case TT_POINTWISE:
  case TT_REDUCE:
  case TT_MATMUL:
  case TT_CONV:
  case TT_VIEW:
  case TT_CREATE:
  case TT_NORM:
  case TT_OPTIM:
  case TT_FOREACH:
    return true;
  default:
    return false;
  }
}

bool tt_op_orders(const tt_op_row *row) {
  const struct ordered *one = ordered;
  while (one->name && strcmp(one->name, row->name) != 0) one++;
  return one->name ? one->is : class_orders(row->cls);
}

static const tt_op_tolerance tolerances[] = {
#define ROW(name, cls, lower, param, statics, doc)
#define EACH(name, base, doc)
#define LOOSE(name, value, why) {name, value, why},
#define PLACE(name, start, end, whole)
#include "ops/rows.def"
#undef LOOSE
#undef PLACE
    {NULL, TT_TOLERANCE, NULL}};

tt_op_tolerance tt_op_tolerance_of(const char *name) {
  const tt_op_tolerance *one = tolerances;
  while (one->name && strcmp(one->name, name) != 0) one++;
  return *one;
}

static const tt_op_place places[] = {
#define LOOSE(name, value, why)
#define PLACE(name, start, end, whole) {name, start, end, whole},
#include "ops/rows.def"
#undef PLACE
#undef REDUCES
#undef REDUCES_LISTED
#undef CONTRACTS
    {NULL, NULL, NULL, 0}};

const tt_op_place *tt_op_place_of(const char *name) {
  const tt_op_place *one = places;
  while (one->name && strcmp(one->name, name) != 0) one++;
  return one->name ? one : NULL;
}

static const tt_op_length lengths[] = {
#define PLACE(name, start, end, whole)
#define REDUCES(name, dims, neutral) {name, neutral, dims, false, {{0, 0}, {0, 0}}},
#define REDUCES_LISTED(name, dims, neutral) {name, neutral, dims, true, {{0, 0}, {0, 0}}},
#define CONTRACTS(name, arg, dim, other, other_dim)                                                \
  {name, TT_SUM, -1, false, {{arg, dim}, {other, other_dim}}},
#include "ops/rows.def"
    {NULL, TT_SUM, 0, false, {{0, 0}, {0, 0}}}};

const tt_op_length *tt_op_length_of(const char *name) {
  const tt_op_length *one = lengths;
  while (one->name && strcmp(one->name, name) != 0) one++;
  return one->name ? one : NULL;
}

static const tt_op_along alongs[] = {
#undef REDUCES
#undef REDUCES_LISTED
#undef CONTRACTS
#undef ALONG
#define REDUCES(name, dims, neutral)
#define REDUCES_LISTED(name, dims, neutral)
#define CONTRACTS(name, arg, dim, other, other_dim)
#define ALONG(name, rule, neutral) {name, rule, neutral},
#include "ops/rows.def"
    {NULL, NULL, TT_SUM}};

const tt_op_along *tt_op_along_of(const char *name) {
  const tt_op_along *one = alongs;
  while (one->name && strcmp(one->name, name) != 0) one++;
  return one;
}

int tt_op_sizes(const tt_op_row *row) {
  const char *rule = tt_op_along_of(row->name)->rule;
  if (!rule || !*rule || !strchr("#?@", *rule)) return -1;
  return rule[strlen(rule) - 1] - '0';
}

bool tt_op_spreads(const tt_op_row *row) {
  if (tt_op_along_of(row->name)->rule || row->cls == TT_POINTWISE) return true;
  const tt_op_length *length = tt_op_length_of(row->name);
  return length && length->reduced >= 0;
}

bool tt_op_broadcasts(const tt_op_row *row) {
  const char *rule = tt_op_along_of(row->name)->rule;
  return rule ? *rule == '\0' : row->cls == TT_POINTWISE;
}

const tt_op_row *tt_op_rows(int *count) {
  *count = (int)(sizeof rows / sizeof *rows);
  return rows;
}

const tt_op_row *tt_op_find(const char *name) {
  pthread_once(&once, index_rows);
  return tt_intern_find(&by_name, name, strlen(name));
}

const char *tt_op_class_name(tt_op_class cls) {
  static const char *const names[] = {
      "pointwise", "reduce", "matmul", "conv",   "view",   "create", "index",   "norm",      "loss",
      "random",    "pool",   "sort",   "linalg", "lapack", "optim",  "foreach", "collective"};
  return (size_t)cls < sizeof names / sizeof *names ? names[cls] : "unknown";
}
