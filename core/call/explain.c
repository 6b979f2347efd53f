/* What tells two calls apart, in words. */
#include "call/explain.h"

#include <string.h>

enum { NAMED = 3 };

/* Counts differences; names the first few if there is a text. */
typedef struct differences {
  tt_text *text;
  int count;
} differences;

static bool differ(differences *d, bool different) {
  if (!different) return false;
  d->count++;
  if (!d->text || d->count > NAMED) return false;
  if (d->count > 1) tt_text_printf(d->text, "; ");
  return true;
}

static void add_ints(tt_text *text, const int64_t *values, int count) {
  tt_text_printf(text, "[");
  for (int i = 0; i < count; i++)
    tt_text_printf(text, "%s%lld", i ? "," : "", (long long)values[i]);
  tt_text_printf(text, "]");
}

/* -- Operands -- */

static void add_view(tt_text *text, const tt_view *view) {
  tt_text_printf(text, "%s", tt_dtype_name(view->dtype));
  add_ints(text, view->sizes, view->rank);
}

static void add_layout(tt_text *text, const tt_call_tensor *tensor) {
  tt_text_printf(text, "strides ");
  add_ints(text, tensor->view.strides, tensor->view.rank);
  tt_text_printf(text, " from %lld in a storage of %s", (long long)tensor->view.offset,
                 tt_dtype_name(tensor->storage->dtype));
  add_ints(text, tensor->storage->dims, tensor->storage->rank);
}

static bool same_ints(const int64_t *a, const int64_t *b, int count) {
  for (int i = 0; i < count; i++)
    if (a[i] != b[i]) return false;
  return true;
}

static bool same_shape(const tt_view *a, const tt_view *b) {
  return a->dtype == b->dtype && a->rank == b->rank && same_ints(a->sizes, b->sizes, a->rank);
}

/* The offset of one that moves is only an example. */
static bool same_layout(const tt_call_tensor *a, const tt_call_tensor *b) {
  bool known = !a->moves && !b->moves;
  return a->storage == b->storage && (!known || a->view.offset == b->view.offset) &&
         same_ints(a->view.strides, b->view.strides, a->view.rank);
}

/* Of the first size of tensor i that is only a bound; 0: there is none. */
static int64_t bound_of(const tt_call_spec *spec, int i, int *dim) {
  for (int k = 0; k < spec->length_count; k++) {
    *dim = spec->lengths[k].dim;
    if (spec->lengths[k].tensor == i) return spec->tensors[i].view.sizes[*dim];
  }
  return 0;
}

/* Whether it is said of tensor i that its size grows: then other sizes are only examples. */
static bool compare_length(differences *d, int i, const tt_call_spec *now,
                           const tt_call_spec *known) {
  int dim = 0, known_dim = 0;
  int64_t bound = bound_of(now, i, &dim), known_bound = bound_of(known, i, &known_dim);
  if (!bound || now->tensors[i].view.rank != known->tensors[i].view.rank) return false;
  if (known_bound && (known_bound == bound || known_dim != dim)) return false;
  if (!differ(d, true)) return true;
  tt_text_printf(d->text, "the size of operand %d's dim %d changes, and is a run-time length ", i,
                 dim);
  if (known_bound)
    tt_text_printf(d->text, "that is now bounded by %lld, not %lld", (long long)bound,
                   (long long)known_bound);
  else tt_text_printf(d->text, "bounded by %lld from now on", (long long)bound);
  return true;
}

static void compare_tensor(differences *d, int i, const tt_call_tensor *now,
                           const tt_call_tensor *known, bool grows) {
  if (!grows && !same_shape(&now->view, &known->view)) {
    if (!differ(d, true)) return;
    tt_text_printf(d->text, "operand %d is ", i);
    add_view(d->text, &now->view);
    tt_text_printf(d->text, ", not ");
    add_view(d->text, &known->view);
  } else if (!grows && differ(d, !same_layout(now, known))) {
    tt_text_printf(d->text, "operand %d is another view: ", i);
    add_layout(d->text, now);
    tt_text_printf(d->text, ", not ");
    add_layout(d->text, known);
  }
  if (differ(d, now->moves != known->moves))
    tt_text_printf(d->text, "operand %d is a view whose offset %s", i,
                   now->moves ? "changes, and is a run-time number from now on"
                              : "is known, no run-time number");
  if (differ(d, now->undefined != known->undefined))
    tt_text_printf(d->text, "operand %d %s", i,
                   now->undefined ? "was not written yet" : "was written before");
  if (!differ(d, now->same_as != known->same_as)) return;
  if (now->same_as < 0) tt_text_printf(d->text, "operand %d has a storage of its own", i);
  else tt_text_printf(d->text, "operand %d shares the storage of operand %d", i, now->same_as);
}

/* -- Arguments -- */

static void add_arg(tt_text *text, const tt_arg *arg) {
  switch (arg->kind) {
  case TT_ARG_NONE:
    tt_text_printf(text, "not given");
    break;
  case TT_ARG_TENSOR:
    tt_text_printf(text, "a tensor");
    break;
  case TT_ARG_TENSORS:
    tt_text_printf(text, "a list of %d tensors", arg->count);
    break;
  case TT_ARG_SCALAR:
    tt_text_printf(text, "a number known at run time");
    break;
  case TT_ARG_SCALARS:
    tt_text_printf(text, "%d %snumbers known at run time", arg->count, arg->equal ? "equal " : "");
    break;
  case TT_ARG_INT:
    if (arg->dtype == TT_BOOL) tt_text_printf(text, "%s", arg->i ? "True" : "False");
    else tt_text_printf(text, "%lld", (long long)arg->i);
    break;
  case TT_ARG_FLOAT:
    tt_text_printf(text, "%.9g", arg->f);
    break;
  case TT_ARG_COMPLEX:
    tt_text_printf(text, "%.9g%+.9gj", arg->floats[0], arg->floats[1]);
    break;
  case TT_ARG_INTS:
    add_ints(text, arg->ints, arg->count);
    break;
  case TT_ARG_FLOATS:
    tt_text_printf(text, "a list of %d numbers", arg->count);
    break;
  case TT_ARG_STRING:
    tt_text_printf(text, "'%s'", arg->text);
    break;
  }
}

/* Bit by bit, so that a NaN is like itself. */
static bool same_floats(const void *a, const void *b, int count) {
  return memcmp(a, b, sizeof(double) * (size_t)count) == 0;
}

static bool same_arg(const tt_arg *a, const tt_arg *b) {
  if (a->kind != b->kind || a->count != b->count) return false;
  switch (a->kind) {
  case TT_ARG_INT:
    return a->i == b->i && a->dtype == b->dtype;
  case TT_ARG_FLOAT:
    return same_floats(&a->f, &b->f, 1);
  case TT_ARG_COMPLEX:
    return same_floats(a->floats, b->floats, 2);
  case TT_ARG_INTS:
    return same_ints(a->ints, b->ints, a->count);
  case TT_ARG_FLOATS:
    return same_floats(a->floats, b->floats, a->count);
  case TT_ARG_STRING:
    return strcmp(a->text, b->text) == 0;
  default:
    return true;
  }
}

static void compare_arg(differences *d, int i, const tt_arg *now, const tt_arg *known) {
  if (!differ(d, !same_arg(now, known))) return;
  if (now->place && now->kind == TT_ARG_SCALAR && known->kind == TT_ARG_INT) {
    tt_text_printf(d->text, "argument %d changes, and is a run-time number from now on", i);
    return;
  }
  tt_text_printf(d->text, "argument %d is ", i);
  add_arg(d->text, now);
  tt_text_printf(d->text, ", not ");
  add_arg(d->text, known);
}

static void compare(differences *d, const tt_call_spec *now, const tt_call_spec *known) {
  int args = now->arg_count < known->arg_count ? now->arg_count : known->arg_count;
  for (int i = 0; i < args; i++) {
    bool moved = i > 0 && now->args[i - 1].place && now->args[i - 1].kind == TT_ARG_SCALAR;
    if (!moved) compare_arg(d, i, &now->args[i], &known->args[i]); /* else it is the end */
  }
  if (now->tensor_count == known->tensor_count)
    for (int i = 0; i < now->tensor_count; i++)
      compare_tensor(d, i, &now->tensors[i], &known->tensors[i], compare_length(d, i, now, known));
  else if (differ(d, true))
    tt_text_printf(d->text, "it has %d operands, not %d", now->tensor_count, known->tensor_count);
  bool alike = now->scalar_count == known->scalar_count; /* else places are among them */
  for (int i = 0; i < now->scalar_count && alike; i++)
    if (differ(d, now->scalars[i] != known->scalars[i]))
      tt_text_printf(d->text, "number %d is %s, not %s", i, tt_dtype_name(now->scalars[i]),
                     tt_dtype_name(known->scalars[i]));
  if (differ(d, now->result_type != known->result_type))
    tt_text_printf(d->text, "it computes in %s, not %s", tt_dtype_name(now->result_type),
                   tt_dtype_name(known->result_type));
  if (differ(d, now->fractions != known->fractions))
    tt_text_printf(d->text, "the default dtype is %s, not %s", tt_dtype_name(now->fractions),
                   tt_dtype_name(known->fractions));
  if (differ(d, now->precision != known->precision))
    tt_text_printf(d->text, "the precision of products is another");
  if (differ(d, now->checks != known->checks))
    tt_text_printf(d->text, "%s",
                   now->checks ? "Debug mode checks its operands"
                               : "nothing is checked outside Debug mode");
}

int tt_explain_difference(const tt_call_spec *now, const tt_call_spec *known, tt_text *text) {
  differences d = {.text = text};
  compare(&d, now, known);
  if (text && d.count > NAMED) tt_text_printf(text, "; and %d more differences", d.count - NAMED);
  if (text && d.count == 0) tt_text_printf(text, "its results are laid out differently");
  return d.count;
}
