/* Bounded values: a view of what counts is found again among the padding, element by element, for
 * random types and views. TT_SEED chooses another sequence, TT_CASES how many. */
#include "support.h"

#include "call/bounded.h"

enum { CASES = 4000, MOST = 6 };

static int setup(void **state) {
  (void)state;
  (void)setenv("TORCH_TPU_GROWING", "on", 1);
  random_seed(20261125);
  return 0;
}

/* -- A bounded type, and a view of what counts of it -- */

typedef struct bounded_case {
  const tt_type *type;
  tt_type exact;
  tt_reach reach;
  tt_view view; /* of the exact storage */
} bounded_case;

static void random_type(bounded_case *c) {
  tt_type type = {.dtype = TT_F32, .rank = 1 + (int)below(4)};
  tt_along along = tt_along_one((int)below(type.rank));
  for (int i = 0; i < type.rank; i++) type.dims[i] = 1 + below(MOST);
  int other = (int)below(type.rank);
  if (other > along.dims[0]) along.dims[along.count++] = other;
  c->reach = (tt_reach){{0}};
  for (int k = 0; k < along.count; k++) {
    type.dims[along.dims[k]] = 2 + below(MOST);
    c->reach.of[k] = 1 + below(type.dims[along.dims[k]]);
  }
  ok(tt_type_intern_bounded(&type, &along, &c->type));
  c->exact = tt_bounded_exact(c->type, &c->reach);
}

static void swap(int64_t *a, int64_t *b) {
  int64_t kept = *a;
  *a = *b;
  *b = kept;
}

static void remove_dim(tt_view *view, int dim) {
  view->rank--;
  for (int i = dim; i < view->rank; i++) {
    view->sizes[i] = view->sizes[i + 1];
    view->strides[i] = view->strides[i + 1];
  }
}

static void insert_dim(tt_view *view, int dim, int64_t size, int64_t stride) {
  for (int i = view->rank; i > dim; i--) {
    view->sizes[i] = view->sizes[i - 1];
    view->strides[i] = view->strides[i - 1];
  }
  view->sizes[dim] = size;
  view->strides[dim] = stride;
  view->rank++;
}

static void slice(tt_view *view, int dim) {
  int64_t start = below(view->sizes[dim]), step = 1 + below(2);
  view->offset += start * view->strides[dim];
  view->sizes[dim] = 1 + below((view->sizes[dim] - start + step - 1) / step);
  view->strides[dim] *= step;
}

static void split(tt_view *view, int dim) {
  int64_t size = view->sizes[dim], part = 2 + below(2);
  if (size % part || view->rank == TT_MAX_RANK) return;
  view->sizes[dim] = part;
  insert_dim(view, dim, size / part, view->strides[dim] * part);
}

static void merge(tt_view *view, int dim) {
  if (dim + 1 == view->rank) return;
  if (view->strides[dim] != view->strides[dim + 1] * view->sizes[dim + 1]) return;
  view->sizes[dim + 1] *= view->sizes[dim];
  remove_dim(view, dim);
}

/* As PyTorch's functions of views do: transpose, slice, select, expand, view. */
static void change(tt_view *view) {
  int dim = (int)below(view->rank), other = (int)below(view->rank);
  switch (below(6)) {
  case 0:
    swap(&view->sizes[dim], &view->sizes[other]);
    swap(&view->strides[dim], &view->strides[other]);
    break;
  case 1:
    slice(view, dim);
    break;
  case 2:
    if (view->rank < 2) break;
    view->offset += below(view->sizes[dim]) * view->strides[dim];
    remove_dim(view, dim);
    break;
  case 3:
    if (view->rank < 5) insert_dim(view, dim, 1 + below(3), 0);
    break;
  case 4:
    split(view, dim);
    break;
  default:
    merge(view, dim);
    break;
  }
}

static void random_case(bounded_case *c) {
  random_type(c);
  c->view = tt_view_whole(&c->exact);
  for (int64_t i = below(5); i > 0; i--) change(&c->view);
}

/* -- Element by element -- */

/* Where the exact storage's element is among the padding. */
static int64_t place_among(const bounded_case *c, int64_t at) {
  int64_t place = 0, unit = 1;
  for (int i = c->type->rank - 1; i >= 0; i--) {
    place += at % c->exact.dims[i] * unit;
    at /= c->exact.dims[i];
    unit *= c->type->dims[i];
  }
  return place;
}

static int64_t bound_of(const bounded_case *c, const tt_mark *mark) {
  return c->type->dims[tt_type_along(c->type)->dims[mark->scalar]];
}

/* Which index along a dim of the padded view an index of the exact one is. */
static int64_t among(const bounded_case *c, const tt_mark *mark, int64_t index) {
  if (!mark) return index;
  int64_t length = c->reach.of[mark->scalar], bound = bound_of(c, mark);
  int64_t inner = index % mark->inner, rest = index / mark->inner;
  return ((rest / length) * bound + rest % length) * mark->inner + inner;
}

static void check_elements(const bounded_case *c, const tt_view *wide, const tt_marks *marks) {
  int64_t index[TT_MAX_RANK] = {0};
  for (int64_t n = tt_view_numel(&c->view); n > 0; n--) {
    int64_t exact = c->view.offset, padded = wide->offset;
    for (int i = 0; i < c->view.rank; i++) {
      exact += index[i] * c->view.strides[i];
      padded += among(c, tt_mark_of(marks, i), index[i]) * wide->strides[i];
    }
    assert_int_equal(padded, place_among(c, exact));
    for (int i = c->view.rank - 1; i >= 0 && ++index[i] == c->view.sizes[i]; i--) index[i] = 0;
  }
}

static void check_sizes(const bounded_case *c, const tt_view *wide, const tt_marks *marks) {
  assert_int_equal(wide->rank, c->view.rank);
  for (int i = 0; i < wide->rank; i++) {
    const tt_mark *mark = tt_mark_of(marks, i);
    int64_t rest = mark ? mark->outer * mark->inner : 0, size = c->view.sizes[i];
    assert_int_equal(wide->sizes[i], mark ? rest * bound_of(c, mark) : size);
    if (mark) assert_int_equal(size, rest * c->reach.of[mark->scalar]);
  }
}

static void test_views(void **state) {
  (void)state;
  int found = 0, twice = 0, count = case_count(CASES);
  tt_guard_enter();
  for (int k = 0; k < count; k++) {
    bounded_case c;
    tt_view wide;
    tt_marks marks;
    random_case(&c);
    if (!tt_bounded_view(c.type, &c.reach, &c.view, &wide, &marks)) continue;
    found++;
    twice += marks.count == 2;
    check_sizes(&c, &wide, &marks);
    check_elements(&c, &wide, &marks);
  }
  tt_guard_leave();
  assert_true(found > count / 2 && twice > count / 40);
}

/* Nothing can be said of bytes that are seen as another dtype, and of no elements. */
static void test_refused_views(void **state) {
  (void)state;
  const tt_type *type = NULL;
  tt_type rows = tt_type_make(TT_F32, 2, DIMS(64, 3));
  tt_view wide;
  tt_marks marks;
  tt_along along = tt_along_one(0);
  tt_reach reach = tt_reach_one(5);
  tt_guard_enter();
  ok(tt_type_intern_bounded(&rows, &along, &type));
  tt_type exact = tt_bounded_exact(type, &reach);
  tt_view view = tt_view_whole(&exact);
  assert_true(tt_bounded_view(type, &reach, &view, &wide, &marks));
  assert_true(marks.count == 1 && marks.of[0].dim == 0 && wide.sizes[0] == 64);
  view.dtype = TT_I32;
  assert_false(tt_bounded_view(type, &reach, &view, &wide, &marks));
  view.dtype = TT_F32;
  view.sizes[1] = 0;
  assert_false(tt_bounded_view(type, &reach, &view, &wide, &marks));
  tt_guard_leave();
}

/* Dims that step along one digit may together leave it, where each alone stays inside. */
static void test_steps_that_meet(void **state) {
  (void)state;
  const tt_type *type = NULL;
  tt_type rows = {.dtype = TT_F32, .rank = 2, .dims = {3, 64}};
  tt_view wide, view = {.dtype = TT_F32, .rank = 2, .sizes = {2, 2}, .strides = {2, 1}};
  tt_marks marks;
  tt_along along = tt_along_one(1);
  tt_reach four = tt_reach_one(4), three = tt_reach_one(3);
  tt_guard_enter();
  ok(tt_type_intern_bounded(&rows, &along, &type));
  assert_true(tt_bounded_view(type, &four, &view, &wide, &marks));
  assert_false(tt_bounded_view(type, &three, &view, &wide, &marks));
  tt_guard_leave();
}

/* No dim may run along two bounded ones: where they meet, padding is amid what counts twice. */
static void test_dims_that_are_merged(void **state) {
  (void)state;
  const tt_type *type = NULL;
  tt_type square = tt_type_make(TT_F32, 3, DIMS(64, 2, 64));
  tt_along along = {.count = 2, .dims = {0, 2}};
  tt_reach reach = {{5, 7}};
  tt_view wide, flat = {.dtype = TT_F32, .rank = 1, .sizes = {70}, .strides = {1}};
  tt_view rows = {.dtype = TT_F32, .rank = 2, .sizes = {10, 7}, .strides = {7, 1}};
  tt_marks marks;
  tt_guard_enter();
  ok(tt_type_intern_bounded(&square, &along, &type));
  assert_false(tt_bounded_view(type, &reach, &flat, &wide, &marks));
  assert_true(tt_bounded_view(type, &reach, &rows, &wide, &marks));
  assert_int_equal(marks.count, 2);
  assert_int_equal(marks.of[0].inner, 2);
  assert_int_equal(wide.sizes[0], 128);
  tt_guard_leave();
}

/* -- New values -- */

/* What is made with room is seen, without the padding, by its first tensor: there and back. */
static void test_results(void **state) {
  (void)state;
  int count = case_count(CASES), made = 0;
  tt_guard_enter();
  for (int k = 0; k < count; k++) {
    tt_type dims = {.dtype = TT_F32, .rank = 1 + (int)below(4)};
    for (int i = 0; i < dims.rank; i++) dims.dims[i] = 1 + below(MOST);
    int dim = (int)below(dims.rank);
    int other = (int)below(dims.rank);
    tt_marks marks = {.count = 0};
    tt_reach lengths = {{0}}; /* by scalar */
    while (marks.count < 1 + (other != dim)) {
      int64_t bound = 2 + below(MOST);
      tt_mark *mark = &marks.of[marks.count];
      *mark = (tt_mark){.dim = marks.count ? other : dim, .outer = 1 + below(3)};
      mark->inner = 1 + below(3);
      mark->scalar = marks.count;
      lengths.of[marks.count++] = 1 + below(bound);
      dims.dims[mark->dim] = mark->outer * bound * mark->inner;
    }
    tt_view wide = tt_view_whole(&dims);
    if (below(2) && dims.rank > 1) {
      tt_view turned = wide;
      swap(&turned.sizes[0], &turned.sizes[dims.rank - 1]);
      swap(&turned.strides[0], &turned.strides[dims.rank - 1]);
      for (int i = 0; i < marks.count; i++) {
        int at = marks.of[i].dim, last = dims.rank - 1;
        marks.of[i].dim = at == 0 ? last : at == last ? 0 : at;
      }
      wide = turned;
    }
    bounded_case c = {.type = NULL};
    ok(tt_bounded_type(&wide, &marks, &c.type));
    for (int i = 0; i < marks.count; i++) c.reach.of[i] = lengths.of[marks.of[i].scalar];
    assert_int_equal(tt_type_numel(c.type), tt_view_numel(&wide));
    c.exact = tt_bounded_exact(c.type, &c.reach);
    c.view = tt_bounded_logical(&wide, &marks, &c.reach);
    assert_int_equal(tt_type_numel(&c.exact), tt_view_numel(&c.view));
    tt_view again;
    tt_marks found;
    if (!tt_bounded_view(c.type, &c.reach, &c.view, &again, &found)) continue;
    made++;
    check_elements(&c, &again, &found);
  }
  tt_guard_leave();
  assert_true(made > count / 2);
}

/* A dense view has room along a dim, and stays dense in the order of its dims. */
static void test_covering(void **state) {
  (void)state;
  tt_view turned = {.dtype = TT_F32, .rank = 3, .sizes = {5, 2, 3}, .strides = {1, 15, 5}};
  tt_view wide = tt_bounded_cover(&turned, 0, 8);
  assert_int_equal(wide.sizes[0], 8);
  assert_int_equal(wide.strides[0], 1);
  assert_int_equal(wide.strides[2], 8);
  assert_int_equal(wide.strides[1], 24);
}

static void test_bounds(void **state) {
  (void)state;
  assert_int_equal(tt_bound_of(1), 64);
  assert_int_equal(tt_bound_of(64), 64);
  assert_int_equal(tt_bound_of(65), 128);
  assert_int_equal(tt_bound_of(INT64_MAX), INT64_MAX);
}

/* -- Sizes that change -- */

static void test_growing(void **state) {
  (void)state;
  tt_growing growing;
  tt_growing_init(&growing);
  for (int64_t size = 2; size < 6; size++) {
    tt_type type = tt_type_make(TT_I64, 2, DIMS(3, size));
    assert_int_equal(tt_growing_upload(&growing, &type), size >= 4 ? 1 : -1); /* the third */
    type.dtype = TT_F32;
    assert_int_equal(tt_growing_upload(&growing, &type), -1); /* weights */
  }
  tt_type one = tt_type_make(TT_I64, 2, DIMS(3, 1)), four = tt_type_make(TT_I64, 2, DIMS(3, 4));
  assert_int_equal(tt_growing_upload(&growing, &one), -1);
  assert_int_equal(tt_growing_upload(&growing, &four), 1);
  static const int64_t ranges[] = {5, 6, 9, 7, 1, 8, 12, 6, 7}; /* 5 to 8 come in order */
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    assert_int_equal(tt_growing_range(&growing, -2, ranges[i] - 2, false),
                     ranges[i] == 7 || ranges[i] == 8);
  for (int64_t size = 5; size < 9; size++) {
    assert_false(tt_growing_range(&growing, 0, size + (1 << 16), false));
    assert_false(tt_growing_range(&growing, 1 << 24, size + (1 << 24), false));
  }
  assert_false(tt_growing_range(&growing, INT64_MIN, INT64_MAX, false));
  assert_false(tt_growing_join(&growing, &four, 1, 3));
  four.dims[1] = 5;
  assert_true(tt_growing_join(&growing, &four, 1, 4));
  four.dims[0] = 4;
  assert_false(tt_growing_join(&growing, &four, 1, 4));
  assert_false(tt_growing_any(&growing));
  tt_growing_deinit(&growing);
}

static void test_live_lengths(void **state) {
  (void)state;
  tt_growing growing;
  tt_growing_init(&growing);
  assert_false(tt_growing_any(&growing));
  tt_growing_enter(&growing, 7);
  tt_growing_enter(&growing, 7);
  tt_growing_leave(&growing, 7);
  assert_true(tt_growing_any(&growing) && tt_growing_is_live(&growing, 7));
  tt_growing_leave(&growing, 7);
  assert_false(tt_growing_any(&growing) || tt_growing_is_live(&growing, 7));
  for (int64_t size = 1; size <= TT_MOST_LIVE + 1; size++) tt_growing_enter(&growing, size);
  assert_false(tt_growing_is_live(&growing, 1)); /* it made way */
  assert_true(tt_growing_is_live(&growing, 2) && tt_growing_is_live(&growing, TT_MOST_LIVE + 1));
  assert_false(tt_growing_is_live(&growing, 0));
  for (int64_t size = 1; size <= TT_MOST_LIVE + 1; size++) tt_growing_leave(&growing, size);
  assert_false(tt_growing_any(&growing));
  tt_growing_deinit(&growing);
}

/* The table is emptied when it is full, and learns again. */
static void test_growing_when_full(void **state) {
  (void)state;
  tt_growing growing;
  tt_growing_init(&growing);
  for (int64_t size = 2; size < 10000; size++) {
    tt_type type = tt_type_make(TT_I64, 1, (int64_t[]){size});
    tt_type other = tt_type_make(TT_I64, 2, (int64_t[]){size, 5});
    (void)tt_growing_upload(&growing, &other);
    (void)tt_growing_join(&growing, &type, 0, size - 1);
  }
  for (int64_t size = 20; size < 23; size++) {
    tt_type type = tt_type_make(TT_I64, 2, (int64_t[]){3, size});
    assert_int_equal(tt_growing_upload(&growing, &type), size == 22 ? 1 : -1);
  }
  tt_growing_deinit(&growing);
}

/* What is made exact before anybody has seen it may as well be exact at once. */
static void test_welcome(void **state) {
  (void)state;
  const tt_type *unwelcome = NULL, *welcome = NULL;
  tt_type type = tt_type_make(TT_I64, 2, DIMS(5, 64));
  tt_guard_enter();
  tt_along first = tt_along_one(0), second = tt_along_one(1);
  ok(tt_type_intern_bounded(&type, &first, &unwelcome));
  ok(tt_type_intern_bounded(&type, &second, &welcome));
  assert_ptr_not_equal(welcome, unwelcome);
  tt_type_note_seen(welcome);
  tt_type_note_settled(welcome);
  assert_false(tt_type_unwelcome(unwelcome, 3));
  tt_type_note_settled(unwelcome);
  assert_false(tt_type_unwelcome(welcome, 3));
  for (int i = 0; i < 100; i++) assert_true(tt_type_unwelcome(unwelcome, 3)); /* of one length */
  assert_true(tt_type_unwelcome(unwelcome, 2));
  for (int patience = 2; patience < 100; patience *= 2) {
    for (int i = patience == 2 ? 2 : 0; i < patience; i++)
      assert_true(tt_type_unwelcome(unwelcome, 1 + i % 2));
    assert_false(tt_type_unwelcome(unwelcome, 3)); /* tries again, */
    assert_false(tt_type_unwelcome(unwelcome, 4));
    tt_type_note_settled(unwelcome); /* in vain */
  }
  tt_guard_leave();
}

/* A call that sees five rows more of [3, 10, 4], and the second block from its second row on. */
static void test_a_view_of_what_is_seen_longer(void **state) {
  (void)state;
  tt_type storage = type_of(TT_F32, 3, DIMS(3, 10, 4));
  tt_call_tensor tensor = {
      .storage = &storage,
      .view = {TT_F32, 3, .offset = 64, .sizes = {2, 14, 4}, .strides = {60, 4, 1}},
      .more_dim = 1,
      .more = 5};
  tt_view real = tt_bounded_shortened(&tensor);
  assert_int_equal(real.offset, 44);
  assert_memory_equal(real.strides, DIMS(40, 4, 1), 3 * sizeof(int64_t));
  tensor.more = 0;
  assert_int_equal(tt_bounded_shortened(&tensor).offset, 64);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_view_of_what_is_seen_longer),
      cmocka_unit_test(test_views),
      cmocka_unit_test(test_refused_views),
      cmocka_unit_test(test_steps_that_meet),
      cmocka_unit_test(test_dims_that_are_merged),
      cmocka_unit_test(test_results),
      cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_covering),
      cmocka_unit_test(test_growing),
      cmocka_unit_test(test_live_lengths),
      cmocka_unit_test(test_growing_when_full),
      cmocka_unit_test(test_welcome),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
