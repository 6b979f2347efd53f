#include "call/moved.h"

/* -- Concatenation -- */

/* What cat leaves out, whatever the others' rank: a tensor of one dim and no elements. */
static bool is_nothing(const tt_call_tensor *tensor) {
  return tensor->view.rank == 1 && tensor->view.sizes[0] == 0;
}

/* The only one that there is; NULL: there are several. */
static const tt_call_tensor *joined_alone(const tt_call_spec *spec) {
  const tt_call_tensor *one = NULL;
  for (int i = 0; i < spec->tensor_count; i++) {
    if (is_nothing(&spec->tensors[i])) continue;
    if (one) return NULL;
    one = &spec->tensors[i];
  }
  return one;
}

static int cat_dim(const tt_call_spec *spec, int rank) {
  int dim = (int)spec->args[1].i;
  return dim < 0 ? dim + rank : dim;
}

bool tt_moved_cat(tt_spread *s, const tt_call_spec *spec) {
  const tt_arg *list = &spec->args[0];
  const tt_call_tensor *alone = joined_alone(spec);
  if (list->kind != TT_ARG_TENSORS || list->count != spec->tensor_count) return false;
  if (alone && !spec->bound) return tt_spread_note_dims(s, alone);
  for (int i = 0; i < spec->tensor_count; i++) {
    const tt_call_tensor *one = &spec->tensors[i];
    int rank = one->view.rank, dim = cat_dim(spec, rank);
    if (rank != spec->tensors[0].view.rank || tt_view_numel(&one->view) == 0) return false;
    for (int k = 0; k < tt_marks_count(&one->marks); k++) {
      const tt_mark *mark = &one->marks.of[k];
      if (mark->outer != 1 || mark->inner != 1) return false;
      if (mark->dim == dim ? !tt_spread_leave_out(s, i, mark)
                           : !tt_spread_note(s, TT_CODE_DIM + mark->dim, one, mark))
        return false;
    }
  }
  if (spec->bound ? s->known_count >= TT_MOST_ALONG : s->length_count > 0) return false;
  for (int i = 0; i < spec->tensor_count; i++) {
    const tt_marks *marks = &spec->tensors[i].marks;
    bool along = tt_mark_of(marks, cat_dim(spec, spec->tensors[i].view.rank));
    if (marks->count - along != s->known_count) return false;
  }
  return spec->bound > 0 || s->known_count > 0;
}

/* The result has room for its bound along a dim. */
static bool give_room(const tt_call_spec *spec, int dim, tt_call_result *result) {
  int rank = result->view.rank;
  tt_type type = tt_view_held(&result->view);
  tt_view rows = tt_view_whole(&type);
  for (int i = 0; i < rank; i++)
    if (rows.sizes[i] != 1 && rows.strides[i] != result->view.strides[i]) return false;
  result->view = tt_bounded_cover(&rows, dim, spec->bound);
  result->marks.of[result->marks.count++] =
      (tt_mark){.dim = dim, .scalar = spec->bound_scalar, .outer = 1, .inner = 1};
  return true;
}

bool tt_moved_cat_result(const tt_call_spec *spec, tt_call_result *result) {
  return give_room(spec, cat_dim(spec, result->view.rank), result);
}

/* -- Stacks -- */

bool tt_moved_stack(tt_spread *s, const tt_call_spec *spec) {
  const tt_call_tensor *first = &spec->tensors[0];
  if (spec->args[0].kind != TT_ARG_TENSORS || spec->args[0].count != spec->tensor_count)
    return false;
  for (int i = 1; i < spec->tensor_count; i++)
    if (!tt_spread_same_all(&spec->tensors[i].marks, &first->marks)) return false;
  return tt_spread_note_dims(s, first);
}

int tt_moved_stacked(const tt_call_spec *spec, int rank, int dim) {
  int at = cat_dim(spec, rank);
  return dim == at ? -1 : dim > at ? dim - 1 : dim;
}

/* -- Repeating -- */

bool tt_moved_repeat(tt_spread *s, const tt_call_spec *spec) {
  (void)s;
  return spec->args[0].kind == TT_ARG_TENSOR && spec->args[1].kind == TT_ARG_INTS;
}

bool tt_moved_repeated(const tt_call_spec *spec, tt_call_result *result) {
  const tt_call_tensor *tensor = &spec->tensors[spec->args[0].first];
  const tt_arg *times = &spec->args[1];
  int more = times->count - tensor->view.rank;
  result->marks = tensor->marks;
  for (int k = 0; k < tt_marks_count(&tensor->marks); k++) {
    tt_mark *mark = &result->marks.of[k];
    mark->dim += more;
    if (times->ints[mark->dim] == 0) return false;
    mark->outer *= times->ints[mark->dim];
  }
  return true;
}

/* -- Padding by a constant -- */

static int moved_dim(const tt_call_spec *spec) {
  const tt_arg *list = &spec->args[1];
  if (list->kind != TT_ARG_INTS || spec->args[0].kind != TT_ARG_TENSOR) return -1;
  int rank = spec->tensors[spec->args[0].first].view.rank;
  return tt_padded_dim(list->ints, (size_t)list->count, rank);
}

bool tt_moved_pad(tt_spread *s, const tt_call_spec *spec) {
  const tt_call_tensor *tensor = &spec->tensors[0];
  int dim = moved_dim(spec);
  if (dim < 0 || (tt_mark_of(&tensor->marks, dim) != NULL) != (spec->bound > 0)) return false;
  for (int k = 0; k < tt_marks_count(&tensor->marks); k++) {
    const tt_mark *mark = &tensor->marks.of[k];
    bool whole = mark->outer == 1 && mark->inner == 1;
    if (mark->dim == dim ? !whole || !tt_spread_leave_out(s, 0, mark)
                         : !tt_spread_note(s, TT_CODE_DIM + mark->dim, tensor, mark))
      return false;
  }
  return true;
}

bool tt_moved_pad_result(const tt_call_spec *spec, tt_call_result *result) {
  return give_room(spec, moved_dim(spec), result);
}

/* -- Putting back -- */

/* Argument 0 is as the result along all dims but one, which it may lack, or of which a part varies.
 */
bool tt_moved_back(tt_spread *s, const tt_call_spec *spec) {
  const tt_call_tensor *part = &spec->tensors[spec->args[0].first];
  int sizes = tt_op_sizes(spec->row);
  int rank = spec->args[sizes].count, dim = (int)spec->args[sizes + 1].i;
  if (dim < 0) dim += rank;
  int found = 0;
  for (int at = 0; at < part->view.rank; at++) {
    int to = part->view.rank < rank && at >= dim ? at + 1 : at;
    const tt_mark *own = tt_mark_of(&part->marks, at), *mark = tt_mark_of(&spec->sized, to);
    found += own != NULL;
    if (own && to == dim && own->outer == 1 && own->inner == 1) {
      if (!tt_spread_leave_out(s, spec->args[0].first, own)) return false;
    } else if (own ? !mark || !tt_spread_same(own, mark) : mark && to != dim) {
      return false;
    }
  }
  return found == part->marks.count;
}
