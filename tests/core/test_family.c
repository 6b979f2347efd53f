/* Families: calls that differ only in where they begin become one, whose places are run-time
 * numbers. */
#include "support.h"

#include "ops/lower.h"

#include <pthread.h>

static tt_stream *stream;
static const tt_type *storage; /* f32[8,6] */

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  tt_status status = session_open(getenv("TT_FAKE_PLUGIN"));
  stream = stream_at(0);
  tt_type type = tt_type_make(TT_F32, 2, DIMS(8, 6));
  if (!status) status = tt_type_intern(&type, &storage);
  return status ? -1 : 0;
}

static int reset(void **state) {
  (void)state;
  fake_reset();
  tt_call_table_lock(session->calls);
  tt_call_table_reclaim(session->calls);
  tt_call_table_unlock(session->calls);
  return 0;
}

/* -- Members -- */

/* A call as the glue asks for one. */
typedef struct asked {
  const tt_op_row *row;
  int tensor_count, arg_count;
  tt_call_tensor tensors[3];
  bool written[3]; /* by the call */
  tt_arg args[6];
  tt_call_result result;
  tt_places places;
} asked;

static const tt_view row_view = {.dtype = TT_F32, .rank = 1, .sizes = {6}, .strides = {1}};

static void add_view(asked *a, tt_view view, int64_t offset, int same_as, bool written) {
  int i = a->tensor_count++;
  view.offset = offset;
  a->tensors[i] = (tt_call_tensor){.storage = storage, .view = view, .same_as = same_as};
  a->written[i] = written;
  a->args[a->arg_count++] = (tt_arg){.kind = TT_ARG_TENSOR, .first = i};
  if (written || i > 0) return;
  a->result = (tt_call_result){.target = -1, .view = view};
  a->result.view.offset = 0;
}

static void add_int(asked *a, int64_t value, bool place) {
  a->args[a->arg_count++] =
      (tt_arg){.kind = TT_ARG_INT, .dtype = TT_I64, .i = value, .place = place};
}

/* -x of a row. */
static asked negated(tt_view view, int64_t offset) {
  asked a = {.row = tt_op_find("neg")};
  add_view(&a, view, offset, -1, false);
  return a;
}

/* x += y, two rows of one storage. */
static asked added(int64_t to, int64_t from) {
  asked a = {.row = tt_op_find("add.Tensor"), .result = {.target = 0}};
  add_view(&a, row_view, to, -1, true);
  add_view(&a, row_view, from, 0, false);
  add_int(&a, 1, false);
  return a;
}

/* The gradient of x[index], or of x[start:end:step]. */
static asked put_back(const char *name, int64_t rows, int64_t start, int64_t end, int64_t step) {
  static const int64_t sizes[2] = {8, 6};
  asked a = {.row = tt_op_find(name)};
  bool slice = strcmp(name, "slice_backward") == 0;
  tt_view grad = {.dtype = TT_F32, .rank = 1, .sizes = {6}, .strides = {1}};
  if (slice) grad = (tt_view){TT_F32, 2, 0, {rows, 6}, {6, 1}};
  add_view(&a, grad, 0, -1, false);
  a.args[a.arg_count++] = (tt_arg){.kind = TT_ARG_INTS, .ints = sizes, .count = 2};
  add_int(&a, 0, false);
  add_int(&a, start, true);
  if (slice) add_int(&a, end, false);
  if (slice) add_int(&a, step, false);
  a.result.view = tt_view_whole(storage);
  return a;
}

static void fill_key(tt_key *key, const asked *a) {
  tt_key_u64(key, (uint64_t)(uintptr_t)a->row);
  for (int i = 0; i < a->arg_count; i++) {
    const tt_arg *arg = &a->args[i];
    if (arg->kind == TT_ARG_TENSOR) {
      const tt_call_tensor *t = &a->tensors[arg->first];
      tt_view whole = tt_view_whole(storage);
      bool canonical = memcmp(&t->view, &whole, sizeof whole) == 0;
      tt_key_tag(key, TT_TAG_TENSOR, a->written[arg->first]);
      tt_key_tensor(key, t->storage, !t->undefined, t->same_as, canonical, t->view.dtype,
                    t->view.rank, t->view.offset, t->view.sizes, t->view.strides);
    } else if (arg->kind == TT_ARG_INTS) {
      tt_key_tag(key, TT_TAG_INTS, (uint64_t)arg->count);
      if (arg->count) tt_key_add(key, arg->ints, sizeof *arg->ints * (size_t)arg->count);
    } else {
      bool end = i > 0 && a->args[i - 1].place;
      tt_key_tag(key, arg->place ? TT_TAG_PLACE : end ? TT_TAG_END : TT_TAG_INT, TT_I64);
      tt_key_u64(key, (uint64_t)arg->i);
    }
  }
}

static tt_status create(asked *a, const tt_key *key, tt_call **out) {
  bool target = a->result.target >= 0;
  if (target) a->result.view = a->tensors[0].view;
  tt_call_spec spec = {.row = a->row,
                       .name = a->row->name,
                       .args = a->args,
                       .arg_count = a->arg_count,
                       .tensors = a->tensors,
                       .tensor_count = a->tensor_count,
                       .result_type = TT_F32,
                       .results = &a->result,
                       .result_count = 1,
                       .meta_known = true};
  return tt_call_create_member(session->calls, key, sizeof(uint64_t), &spec, &session->target,
                               &a->places, out);
}

static tt_status look_up(asked *a, tt_call **out) {
  tt_key key;
  tt_key_init(&key);
  fill_key(&key, a);
  tt_status status = TT_SUCCESS;
  *out = tt_call_find(session->calls, &key, &a->places);
  if (!*out)
    *out = tt_call_find_general(session->calls, a->row, &key, sizeof(uint64_t), &a->places);
  if (!*out) status = create(a, &key, out);
  if (!status && !*out) status = tt_error(TT_INTERNAL, "no call");
  tt_key_deinit(&key);
  return status;
}

static tt_call *call_of(asked *a) {
  tt_call *call = NULL;
  ok(look_up(a, &call));
  int words = 0;
  for (int i = 0; i < call->spec.scalar_count; i++) words += tt_scalar_words(call->spec.scalars[i]);
  assert_int_equal(words, 2 * a->places.count);
  assert_int_equal(call->word_count, words);
  return call;
}

/* It does not belong to the general call, whether it can be made or not. */
static void stands_alone(asked *a, const tt_call *general) {
  tt_call *call = NULL;
  tt_status status = look_up(a, &call);
  assert_ptr_not_equal(call, general);
  assert_int_equal(a->places.count, 0);
  tt_status_release(status);
}

static void expect_places(const asked *a, int count, const int64_t *values) {
  assert_int_equal(a->places.count, count);
  assert_memory_equal(a->places.values, values, sizeof *values * (size_t)count);
}

static int64_t calls(void) { return tt_call_table_size(session->calls); }

/* -- Views -- */

static void test_rows(void **state) {
  (void)state;
  asked first = negated(row_view, 0), second = negated(row_view, 12), third = negated(row_view, 30);
  tt_call *exact = call_of(&first);
  expect_places(&first, 0, NULL);
  assert_false(exact->spec.tensors[0].moves);
  tt_call *general = call_of(&second);
  assert_ptr_not_equal(general, exact);
  assert_true(general->spec.tensors[0].moves);
  assert_non_null(strstr(general->why, "operand 0 is a view whose offset changes"));
  expect_places(&second, 1, DIMS(12));
  for (int again = 0; again < 2; again++) { /* the second time its key is known */
    assert_ptr_equal(call_of(&third), general);
    expect_places(&third, 1, DIMS(30));
  }
  assert_ptr_equal(call_of(&first), exact);
  expect_places(&first, 0, NULL);
  assert_int_equal(calls(), 2);
}

static void test_known_keys_without_places(void **state) {
  (void)state;
  asked first = negated(row_view, 0), second = negated(row_view, 6);
  (void)call_of(&first);
  (void)call_of(&second);
  (void)call_of(&second);
  tt_key key;
  tt_key_init(&key);
  fill_key(&key, &second);
  assert_null(tt_call_find(session->calls, &key, NULL)); /* who asks so hands a call nothing */
  assert_non_null(tt_call_find(session->calls, &key, &second.places));
  tt_key_deinit(&key);
}

/* Windows that lie within rows, and those that do not, are found differently. */
static void test_motions(void **state) {
  (void)state;
  tt_view pairs = {TT_F32, 2, 0, {2, 4}, {6, 1}};
  asked inside = negated(pairs, 1), other = negated(pairs, 8), crossing = negated(pairs, 3);
  asked outside = negated(pairs, 44);
  tt_call *exact = call_of(&inside), *general = call_of(&other), *flat = call_of(&crossing);
  assert_ptr_not_equal(general, exact);
  assert_ptr_not_equal(flat, general);
  expect_places(&crossing, 1, DIMS(3));
  crossing = negated(pairs, 15);
  assert_ptr_equal(call_of(&crossing), flat);
  tt_call *stays = NULL; /* it does not lie in the storage */
  tt_status status = look_up(&outside, &stays);
  assert_true(status || !stays->spec.tensors[0].moves);
  tt_status_release(status);
}

static void test_distances(void **state) {
  (void)state;
  asked first = added(6, 0), second = added(12, 6), other = added(18, 0), more = added(42, 36);
  (void)call_of(&first);
  tt_call *general = call_of(&second);
  expect_places(&second, 2, DIMS(12, 6));
  assert_ptr_equal(call_of(&more), general);
  tt_key key;
  tt_key_init(&key);
  fill_key(&key, &other); /* another distance is to be looked at, and then has the same call */
  assert_null(
      tt_call_find_general(session->calls, other.row, &key, sizeof(uint64_t), &other.places));
  assert_ptr_equal(call_of(&other), general);
  assert_ptr_equal(
      tt_call_find_general(session->calls, other.row, &key, sizeof(uint64_t), &other.places),
      general);
  expect_places(&other, 2, DIMS(18, 0));
  tt_key_deinit(&key);
  other = added(24, 6);
  assert_ptr_equal(call_of(&other), general);
  expect_places(&other, 2, DIMS(24, 6));
  assert_int_equal(calls(), 2);
}

static void test_reads_move_apart(void **state) {
  (void)state;
  tt_call *general[3];
  int64_t offsets[5][2] = {{0, 0}, {6, 0}, {12, 0}, {12, 6}, {0, 30}};
  for (int i = 0; i < 5; i++) {
    asked a = {.row = tt_op_find("add.Tensor")};
    add_view(&a, row_view, offsets[i][0], -1, false);
    add_view(&a, row_view, offsets[i][1], 0, false);
    add_int(&a, 1, false);
    tt_call *call = call_of(&a);
    if (i == 1) general[0] = call;
    if (i == 2) assert_ptr_equal(call, general[0]);
    if (i == 3) general[1] = call;
    if (i == 4) assert_ptr_equal(call, general[1]);
    expect_places(&a, i == 0 ? 0 : i < 3 ? 1 : 2, offsets[i]);
  }
  assert_int_equal(calls(), 3);
}

static void test_beside_the_whole(void **state) {
  (void)state;
  for (int64_t row = 0; row < 4; row++) {
    asked a = {.row = tt_op_find("mul.Tensor"), .result = {.target = 0}};
    add_view(&a, tt_view_whole(storage), 0, -1, true);
    add_view(&a, row_view, 6 * row, 0, false);
    assert_int_equal(call_of(&a)->spec.tensors[1].moves, row > 0);
  }
  assert_int_equal(calls(), 2);
}

static void test_unwritten_storages(void **state) {
  (void)state;
  asked first = negated(row_view, 0), second = negated(row_view, 6), third = negated(row_view, 12);
  first.tensors[0].undefined = true;
  tt_call *unwritten = call_of(&first), *general = call_of(&second);
  assert_int_equal(unwritten->input_count, 0);
  assert_int_equal(general->input_count, 1);
  assert_true(general->spec.tensors[0].moves);
  assert_ptr_equal(call_of(&third), general);
  third.tensors[0].undefined = true;
  assert_ptr_not_equal(call_of(&third), general);
  assert_int_equal(calls(), 3);
}

static void test_nothing_to_see(void **state) {
  (void)state;
  tt_view none = {TT_F32, 2, 0, {0, 6}, {6, 1}};
  asked first = negated(none, 0), second = negated(none, 48), third = negated(none, 18);
  (void)call_of(&first);
  assert_ptr_equal(call_of(&second), call_of(&third));
}

static void test_too_many_places(void **state) {
  (void)state;
  tt_key key;
  tt_member member;
  for (int count = TT_MOST_PLACES; count <= TT_MOST_PLACES + 1; count++) {
    tt_key_init(&key);
    for (int i = 0; i < count; i++) {
      tt_key_tag(&key, i % 2 ? TT_TAG_TENSOR : TT_TAG_PLACE, 0);
      if (i % 2) tt_key_tensor(&key, storage, true, -1, false, TT_F32, 1, 6, DIMS(6), DIMS(1));
      else tt_key_u64(&key, 5);
    }
    assert_int_equal(tt_member_init(&member, tt_op_find("neg"), &key, 0), count == TT_MOST_PLACES);
    tt_member_deinit(&member);
    tt_key_deinit(&key);
  }
}

/* -- Arguments -- */

static void test_indices(void **state) {
  (void)state;
  asked a = put_back("select_backward", 1, 2, 0, 0);
  tt_call *exact = call_of(&a);
  a = put_back("select_backward", 1, 5, 0, 0);
  tt_call *general = call_of(&a);
  assert_ptr_not_equal(general, exact);
  assert_non_null(strstr(general->why, "argument 3 changes"));
  expect_places(&a, 1, DIMS(5));
  int64_t given[] = {0, 7, -1, -8}, wrapped[] = {0, 7, 7, 0};
  for (int i = 0; i < 4; i++) {
    a = put_back("select_backward", 1, given[i], 0, 0);
    assert_ptr_equal(call_of(&a), general);
    expect_places(&a, 1, &wrapped[i]);
  }
  for (int i = 0; i < 2; i++) { /* it is PyTorch's to object */
    a = put_back("select_backward", 1, i ? -9 : 8, 0, 0);
    stands_alone(&a, general);
  }
}

static void test_starts(void **state) {
  (void)state;
  asked a = put_back("slice_backward", 3, 0, 3, 1);
  (void)call_of(&a);
  a = put_back("slice_backward", 3, 2, 5, 1);
  tt_call *general = call_of(&a);
  expect_places(&a, 1, DIMS(2));
  int64_t starts[] = {5, -4}, wrapped[] = {5, 4};
  for (int i = 0; i < 2; i++) {
    a = put_back("slice_backward", 3, starts[i], starts[i] + 3, 1);
    assert_ptr_equal(call_of(&a), general);
    expect_places(&a, 1, &wrapped[i]);
  }
  int64_t others[][2] = {{6, 9}, {-3, 0}, {-2, 1}, {5, 8 + 3}, {5, INT64_MAX}};
  for (int i = 0; i < 5; i++) { /* an end past the end, or of another distance */
    a = put_back("slice_backward", 3, others[i][0], others[i][1], 1);
    stands_alone(&a, general);
  }
}

static void test_steps(void **state) {
  (void)state;
  asked a = put_back("slice_backward", 3, 0, 5, 2);
  (void)call_of(&a);
  for (int64_t start = 1; start < 4; start++) {
    a = put_back("slice_backward", 3, start, start + 5, 2);
    (void)call_of(&a);
    expect_places(&a, 1, &start);
  }
  assert_int_equal(calls(), 2);
  a = put_back("slice_backward", 2, 0, 5, 2); /* the part is shorter than the slice */
  for (int i = 0; i < 2; i++) {
    tt_call *call = NULL;
    tt_status_release(look_up(&a, &call));
    assert_int_equal(a.places.count, 0);
    a = put_back("slice_backward", 2, 1, 6, 2);
  }
}

/* -- Sizes -- */

/* x[from:from + rows].sum(dims) */
static asked summed(int64_t from, int64_t rows, int64_t columns, const int64_t *dims, int count) {
  asked a = {.row = tt_op_find("sum.dim_IntList")};
  add_view(&a, (tt_view){TT_F32, 2, 0, {rows, columns}, {6, 1}}, 6 * from, -1, false);
  a.args[a.arg_count++] = (tt_arg){.kind = TT_ARG_INTS, .ints = dims, .count = count};
  add_int(&a, 0, false);
  a.result.view = (tt_view){TT_F32, 1, 0, {columns}, {1}};
  if (count == 0) a.result.view.rank = 0;
  return a;
}

/* x[:rows].T @ x[:others, :3] */
static asked contracted(int64_t rows, int64_t others) {
  asked a = {.row = tt_op_find("mm")};
  add_view(&a, (tt_view){TT_F32, 2, 0, {6, rows}, {1, 6}}, 0, -1, false);
  add_view(&a, (tt_view){TT_F32, 2, 0, {others, 3}, {6, 1}}, 0, 0, false);
  a.result.view = (tt_view){TT_F32, 2, 0, {6, 3}, {3, 1}};
  return a;
}

static void test_lengths(void **state) {
  (void)state;
  asked a = summed(0, 2, 6, DIMS(0), 1);
  tt_call *exact = call_of(&a);
  assert_int_equal(exact->spec.length_count, 0);
  a = summed(0, 3, 6, DIMS(0), 1);
  tt_call *general = call_of(&a);
  expect_places(&a, 1, DIMS(3));
  assert_int_equal(general->spec.length_count, 1);
  assert_int_equal(general->spec.lengths[0].dim, 0);
  assert_int_equal(general->spec.tensors[0].view.sizes[0], 8); /* all that there is */
  assert_false(general->spec.tensors[0].moves);
  assert_non_null(strstr(general->why, "the size of operand 0's dim 0 changes, and is a run-time "
                                       "length bounded by 8 from now on"));
  for (int64_t rows = 1; rows < 8; rows++) {
    a = summed(0, rows, 6, DIMS(0), 1);
    assert_ptr_equal(call_of(&a), rows == 2 ? exact : general);
  }
  a = summed(2, 4, 6, DIMS(0), 1); /* the offset, too */
  tt_call *both = call_of(&a);
  assert_ptr_not_equal(both, general);
  expect_places(&a, 2, DIMS(12, 4));
  a = summed(7, 1, 6, DIMS(0), 1); /* which then runs past the end */
  assert_ptr_equal(call_of(&a), both);
  expect_places(&a, 2, DIMS(42, 1));
  assert_int_equal(calls(), 3);
  a = summed(3, 2, 6, DIMS(0), 1); /* the first one's size needs no bound */
  assert_int_equal(call_of(&a)->spec.length_count, 0);
  expect_places(&a, 1, DIMS(18));
}

static void test_sizes_that_stay(void **state) {
  (void)state;
  int64_t sizes[][2] = {{2, 6}, {0, 6}, {3, 5}, {4, 4}};
  for (int i = 0; i < 4; i++) { /* nothing there; the result has the other dim; all are reduced */
    asked kept = summed(0, sizes[i][0], sizes[i][1], DIMS(0), 1);
    assert_int_equal(call_of(&kept)->spec.length_count, 0);
    asked all = summed(0, sizes[i][0], sizes[i][1], NULL, 0);
    assert_int_equal(call_of(&all)->spec.length_count, 0);
  }
  for (int64_t rows = 2; rows < 5; rows++) { /* no row that has lengths */
    asked a = negated((tt_view){TT_F32, 2, 0, {rows, 6}, {6, 1}}, 0);
    assert_int_equal(call_of(&a)->spec.length_count, 0);
  }
}

/* A part that begins and ends elsewhere, of another size. */
static void test_parts_that_grow(void **state) {
  (void)state;
  int64_t ends[][2] = {{0, 3}, {0, 4}, {0, 6}, {2, 6}, {3, 4}, {-4, -2}, {6, 8}};
  for (int i = 0; i < 7; i++) {
    int64_t start = ends[i][0], end = ends[i][1], values[2] = {start, end - start};
    asked a = put_back("slice_backward", end - start, start, end, 1);
    (void)call_of(&a);
    if (start < 0) values[0] += 8;
    expect_places(&a, i == 0 ? 0 : i < 3 ? 1 : 2, i < 3 ? &values[1] : values);
  }
  asked a = put_back("slice_backward", 3, 6, 9, 1); /* it ends behind */
  tt_call *call = NULL;
  tt_status_release(look_up(&a, &call));
  assert_int_equal(a.places.count, 0);
}

static void test_sizes_that_are_one(void **state) {
  (void)state;
  asked a = contracted(2, 2);
  (void)call_of(&a);
  a = contracted(3, 3);
  tt_call *general = call_of(&a);
  expect_places(&a, 1, DIMS(3));
  assert_int_equal(general->spec.length_count, 2);
  assert_int_equal(general->spec.lengths[0].scalar, general->spec.lengths[1].scalar);
  a = contracted(5, 5);
  assert_ptr_equal(call_of(&a), general);
  tt_call *call = NULL;
  a = contracted(5, 4); /* the lowering's to object */
  tt_status status = look_up(&a, &call);
  assert_non_null(status);
  tt_status_release(status);
}

static void lower_known_only(tt_lower *cx) {
  if (tt_moves(cx, 3)) tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "not at run time");
  tt_out(cx, 0, tt_hlo_zeros(cx->h, storage));
}

static void test_refused(void **state) {
  (void)state;
  static const tt_op_row row = {
      .name = "select_backward", .lower = lower_known_only, .statics = "", .doc = ""};
  for (int64_t i = 0; i < 4; i++) {
    asked a = put_back("select_backward", 1, i, 0, 0);
    a.row = &row;
    assert_int_equal(call_of(&a)->spec.args[3].kind, TT_ARG_INT);
    expect_places(&a, 0, NULL);
  }
  assert_int_equal(calls(), 4);
}

/* -- Memory, threads -- */

static void test_without_memory(void **state) {
  (void)state;
  for (int64_t nth = 1, last = 1; last >= nth; nth++) {
    (void)reset(NULL);
    for (int64_t start = 0; start < 4; start++) {
      asked a = put_back("slice_backward", 3, start, start + 3, 1);
      tt_call *call = NULL;
      if (start < 2) tt_alloc_fail_at(nth, false);
      tt_status status = look_up(&a, &call);
      if (start < 2) last = tt_alloc_count();
      tt_alloc_fail_at(0, false);
      if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      else assert_non_null(call);
    }
  }
}

enum { THREADS = 4, ROUNDS = 200 };

static void *look_up_rows(void *seed) {
  uint64_t at = (uint64_t)(uintptr_t)seed;
  for (int i = 0; i < ROUNDS; i++) {
    at = at * 6364136223846793005u + 1442695040888963407u;
    int64_t row = (int64_t)(at >> 60 & 7);
    asked a = negated(row_view, 6 * row);
    tt_call *call = NULL;
    tt_status status = look_up(&a, &call);
    bool moves = call && call->spec.tensors[0].moves;
    bool right = moves ? a.places.count == 1 && a.places.values[0] == 6 * row
                       : call && !a.places.count && call->spec.tensors[0].view.offset == 6 * row;
    tt_status_release(status);
    if (!right) return seed;
  }
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    pthread_t threads[THREADS];
    (void)reset(NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, look_up_rows,
                                      (void *)(i + 1 + (uintptr_t)round * THREADS)),
                       0);
    for (int i = 0; i < THREADS; i++) {
      void *wrong = NULL;
      (void)pthread_join(threads[i], &wrong);
      assert_null(wrong);
    }
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, reset)
  const struct CMUnitTest tests[] = {
      TEST(test_rows),
      TEST(test_known_keys_without_places),
      TEST(test_motions),
      TEST(test_distances),
      TEST(test_reads_move_apart),
      TEST(test_beside_the_whole),
      TEST(test_unwritten_storages),
      TEST(test_nothing_to_see),
      TEST(test_too_many_places),
      TEST(test_indices),
      TEST(test_starts),
      TEST(test_steps),
      TEST(test_lengths),
      TEST(test_sizes_that_stay),
      TEST(test_sizes_that_are_one),
      TEST(test_parts_that_grow),
      TEST(test_refused),
      TEST(test_without_memory),
      TEST(test_threads),
  };
  return cmocka_run_group_tests(tests, setup, fake_close);
}
