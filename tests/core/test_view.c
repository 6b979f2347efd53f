/* View arithmetic against a byte-by-byte reference, on the real CPU plugin (TT_CPU_PLUGIN), for
 * random storages and views, whose offsets are known or come at run time. TT_SEED chooses another
 * sequence, TT_CASES how many. */
#include "support.h"

#include <inttypes.h>
#include <stdio.h>

enum { MAX_BYTES = 8192, BATCH = 16, CASES = 320 };

static tt_client *client;

static int setup(void **state) {
  (void)state;
  const char *path = getenv("TT_CPU_PLUGIN");
  tt_plugin *plugin = NULL;
  random_seed(20260101);
  if (!path || !*path) return 0;
  tt_status status = tt_plugin_open(path, &plugin);
  if (!status) status = tt_client_create(plugin, NULL, &client);
  return status ? -1 : 0;
}

static int teardown(void **state) {
  (void)state;
  tt_client_destroy(client);
  return 0;
}

static bool one_in(int64_t n) { return below(n) == 0; }

/* -- One case: a storage, a view, their bytes -- */

typedef struct view_case {
  tt_type storage;
  tt_view view;
  int64_t bytes, view_bytes;
  uint8_t before[MAX_BYTES], fresh[MAX_BYTES]; /* the storage; what is written, by place */
  uint8_t read[MAX_BYTES], value[MAX_BYTES], after[MAX_BYTES];
  tt_node *read_node, *written_node;
  bool moves;     /* its offset comes at run time, */
  tt_view sample; /* to a program that was made for this view */
  bool grows;     /* so does its size along `dim`, in a program for the view `wide` */
  int dim;
  tt_view wide;
  tt_motion motion;
} view_case;

static int64_t view_numel(const tt_view *view) {
  int64_t n = 1;
  for (int i = 0; i < view->rank; i++) n *= view->sizes[i];
  return n;
}

/* The last element's place, or -1. */
static int64_t last_place(const tt_view *view) {
  int64_t place = view->offset;
  for (int i = 0; i < view->rank; i++) place += (view->sizes[i] - 1) * view->strides[i];
  return view_numel(view) ? place : -1;
}

/* The place in the storage, in elements, of element k in row-major order. */
static int64_t place_of(const tt_view *view, int64_t k) {
  int64_t place = view->offset;
  for (int i = view->rank - 1; i >= 0; i--) {
    place += k % view->sizes[i] * view->strides[i];
    k /= view->sizes[i];
  }
  return place;
}

static void reference(view_case *c) {
  size_t size = (size_t)tt_dtype_bytes(c->view.dtype);
  memcpy(c->after, c->before, (size_t)c->bytes);
  for (int64_t k = 0; k < view_numel(&c->view); k++) {
    size_t place = (size_t)place_of(&c->view, k) * size, at = (size_t)k * size;
    memcpy(c->read + at, c->before + place, size);
    memcpy(c->value + at, c->fresh + place, size);
    memcpy(c->after + place, c->fresh + place, size);
  }
}

static bool has(const view_case *c, tt_dtype dtype) {
  return c->view.dtype == dtype || c->storage.dtype == dtype;
}

/* Bools have two values, and XLA's CPU compiler turns one NaN of f8E5M2 into another, and,
 * where they are repeated, small numbers of BF16 into zeros and NaNs into quiet ones. */
static uint8_t random_byte(const view_case *c, int64_t at) {
  uint8_t byte = (uint8_t)random_bits();
  bool small = has(c, TT_BF16) && at % 2 == 0;
  if (has(c, TT_BOOL)) return small ? 0 : byte & 1;
  if (small) return byte | 0xC0;
  bool f8 = has(c, TT_F8E5M2);
  return f8 && (byte & 0x7C) == 0x7C ? byte & 0xFC : byte;
}

static void fill_bytes(view_case *c) {
  for (int64_t i = 0; i < c->bytes; i++) {
    c->before[i] = random_byte(c, i);
    c->fresh[i] = random_byte(c, i);
  }
}

/* -- Random views -- */

static tt_dtype random_dtype(void) {
  static const tt_dtype common[] = {TT_F32, TT_I64, TT_U8, TT_BOOL, TT_F16, TT_C64};
  if (one_in(2)) return common[below(6)];
  for (;;) {
    tt_dtype dtype = (tt_dtype)below(TT_DTYPE_LIMIT);
    if (tt_dtype_bytes(dtype) && tt_dtype_held(dtype) == dtype) return dtype;
  }
}

static void swap_dims(tt_view *view, int a, int b) {
  int64_t size = view->sizes[a], stride = view->strides[a];
  view->sizes[a] = view->sizes[b];
  view->strides[a] = view->strides[b];
  view->sizes[b] = size;
  view->strides[b] = stride;
}

static void take_slice(tt_view *view, int dim) {
  int64_t size = view->sizes[dim];
  if (size == 0) return;
  int64_t start = below(size), stop = start + 1 + below(size - start), step = 1 + below(3);
  view->offset += start * view->strides[dim];
  view->sizes[dim] = (stop - start + step - 1) / step;
  view->strides[dim] *= step;
}

static void select_index(tt_view *view, int dim) {
  if (view->sizes[dim] == 0) return;
  view->offset += below(view->sizes[dim]) * view->strides[dim];
  for (int i = dim; i + 1 < view->rank; i++) swap_dims(view, i, i + 1);
  view->rank--;
}

static void add_dim(tt_view *view, int64_t size, int64_t stride) {
  view->sizes[view->rank] = size;
  view->strides[view->rank++] = stride;
  if (view->rank > 1) swap_dims(view, view->rank - 1, (int)below(view->rank));
}

static void unfold(tt_view *view, int dim) { /* overlapping windows */
  int64_t size = view->sizes[dim], stride = view->strides[dim];
  if (size < 2) return;
  int64_t window = 1 + below(size), step = 1 + below(2);
  view->sizes[dim] = (size - window) / step + 1;
  view->strides[dim] = stride * step;
  add_dim(view, window, stride);
}

static void split_dim(tt_view *view, int dim) {
  for (int64_t part = 2; part < view->sizes[dim]; part++) {
    if (view->sizes[dim] % part) continue;
    view->sizes[dim] /= part;
    int64_t stride = view->strides[dim];
    view->strides[dim] *= part;
    add_dim(view, part, stride);
    return;
  }
}

static void merge_diagonal(tt_view *view, int a, int b) {
  int64_t size = view->sizes[a] < view->sizes[b] ? view->sizes[a] : view->sizes[b];
  if (a == b) return;
  view->sizes[a] = size;
  view->strides[a] += view->strides[b];
  for (int i = b; i + 1 < view->rank; i++) swap_dims(view, i, i + 1);
  view->rank--;
}

/* What a chain of torch's view operators makes of a tensor. */
static void transform(tt_view *view) {
  for (int64_t i = below(5); i > 0 && view->rank < 6; i--) {
    int dim = view->rank ? (int)below(view->rank) : 0;
    int64_t kind = view->rank ? below(8) : 4;
    if (kind == 0) swap_dims(view, dim, (int)below(view->rank));
    if (kind == 1 || kind == 2) take_slice(view, dim);
    if (kind == 3) select_index(view, dim);
    if (kind == 4) add_dim(view, 1, below(9));
    if (kind == 5) add_dim(view, 1 + below(3), 0);
    if (kind == 6) split_dim(view, dim);
    if (kind == 7 && one_in(2)) unfold(view, dim);
    else if (kind == 7) merge_diagonal(view, dim, (int)below(view->rank));
  }
}

/* torch.as_strided with anything that fits. */
static void random_strides(tt_view *view, int64_t total) {
  do {
    view->rank = (int)below(4);
    view->offset = below(total + 1);
    for (int i = 0; i < view->rank; i++) {
      view->sizes[i] = one_in(20) ? 0 : 1 + below(5);
      view->strides[i] = below(total / 2 + 2);
    }
  } while (last_place(view) >= total);
}

static void random_case(view_case *c) {
  do {
    c->storage.dtype = random_dtype();
    c->storage.rank = (int)below(5);
    for (int i = 0; i < c->storage.rank; i++) c->storage.dims[i] = one_in(30) ? 0 : 1 + below(6);
    assert_true(tt_type_bytes(&c->storage, &c->bytes));
    tt_dtype dtype = one_in(3) ? random_dtype() : c->storage.dtype;
    int64_t total = c->bytes / tt_dtype_bytes(dtype);
    tt_type flat = tt_type_make(dtype, 1, &total);
    c->view = tt_view_whole(dtype == c->storage.dtype ? &c->storage : &flat);
    if (one_in(4)) random_strides(&c->view, total);
    else transform(&c->view);
    int64_t room = total - 1 - last_place(&c->view);
    if (one_in(3) && view_numel(&c->view) && room > 0) c->view.offset += below(room + 1);
    c->view_bytes = view_numel(&c->view) * tt_dtype_bytes(dtype);
    if (last_place(&c->view) >= total) c->view_bytes = MAX_BYTES + 1;
  } while (c->bytes > MAX_BYTES || c->view_bytes > MAX_BYTES);
  c->moves = c->grows = false;
  fill_bytes(c);
  reference(c);
}

static int motions[3]; /* cases of each */

/* The program is made for another offset, if there is one that moves alike. */
static void move(view_case *c) {
  int64_t total = tt_view_total(&c->view, &c->storage);
  tt_motion motion = tt_view_motion(&c->view, total);
  motions[motion]++;
  c->moves = motion != TT_MOTION_NONE;
  c->sample = c->view;
  if (!c->moves) return;
  for (int i = 0; i < 20 && c->sample.offset == c->view.offset; i++) {
    tt_view other = c->view;
    other.offset = below(total + 1);
    if (tt_view_motion(&other, total) == motion) c->sample = other;
  }
}

static int grown[3], shifted; /* cases by motion; those whose window begins too late */

/* The program is made for a size between the view's and the greatest. */
static void grow(view_case *c) {
  int64_t total = tt_view_total(&c->view, &c->storage);
  int dim = c->view.rank ? (int)below(c->view.rank) : 0;
  if (c->view.rank == 0 || c->view.strides[dim] < 1 || view_numel(&c->view) == 0) return;
  bool moves = one_in(2);
  int64_t room = tt_view_room(&c->view, total, dim, moves), size = c->view.sizes[dim];
  assert_true(room >= size);
  if (room < 2) return;
  int64_t least = size < 2 ? 2 : size;
  c->grows = true;
  c->moves = moves;
  c->dim = dim;
  c->wide = c->view;
  c->motion = tt_view_widen(&c->wide, total, dim, least + below(room - least + 1), moves);
  c->sample = c->view;
  assert_true(last_place(&c->wide) < total && c->wide.offset >= 0);
  grown[c->motion] += moves;
  shifted += moves && last_place(&c->wide) - c->wide.offset + c->view.offset >= total;
}

static void print_case(const view_case *c) {
  tt_text text = TT_TEXT_INIT;
  tt_type_print(&c->storage, &text);
  print_error("%s seen as %s at %" PRId64 ":", text.data, tt_dtype_name(c->view.dtype),
              c->view.offset);
  for (int i = 0; i < c->view.rank; i++)
    print_error(" %" PRId64 "*%" PRId64, c->view.sizes[i], c->view.strides[i]);
  print_error("\n");
  tt_text_deinit(&text);
}

/* -- Programs of many cases -- */

static tt_executable *compile(tt_hlo *h, tt_node *const *results, int count) {
  tt_text text = TT_TEXT_INIT;
  tt_executable *executable = NULL;
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  ok(tt_hlo_finish(h, results, count, &text));
  tt_status status = tt_compile(client, text.data, text.size, &options, &executable);
  if (status) print_error("%s\n", text.data);
  ok(status);
  tt_text_deinit(&text);
  return executable;
}

static bool same(tt_buffer *buffer, const tt_type *type, const uint8_t *expected, int64_t size) {
  static uint8_t got[MAX_BYTES];
  ok(tt_buffer_to_host(client, buffer, type, got, size));
  return memcmp(got, expected, (size_t)size) == 0;
}

static void build(tt_hlo *h, view_case *c) {
  tt_type value = tt_view_type(&c->view), place = {.dtype = TT_I64};
  const tt_view *view = c->moves ? &c->sample : &c->view;
  bool failed = tt_hlo_failed(h), alone = tt_view_covers(&c->view, &c->storage);
  tt_node *storage = tt_hlo_param(h, &c->storage), *written = tt_hlo_param(h, &value);
  tt_node *param = tt_hlo_param(h, &place), *offset = c->moves ? param : NULL;
  c->read_node = tt_view_read(h, storage, view, offset);
  c->written_node = tt_view_write(h, alone ? NULL : storage, &c->storage, view, offset, written);
  if (c->grows && c->moves)
    c->read_node = tt_view_read_on(h, storage, &c->wide, offset, c->dim, c->motion);
  else if (c->grows) c->read_node = tt_view_read(h, storage, &c->wide, NULL);
  if (c->grows)
    c->read_node = tt_hlo_slice_dim(h, c->read_node, c->dim, 0, c->view.sizes[c->dim], 1);
  if (tt_hlo_failed(h) && !failed) print_case(c);
}

/* How many are wrong. */
static int run_batch(view_case *cases) {
  tt_hlo *h = NULL;
  tt_node *results[2 * BATCH];
  tt_buffer *arguments[3 * BATCH], *outputs[2 * BATCH];
  tt_pjrt_device *device = tt_client_device(client, 0);
  ok(tt_hlo_create(&h));
  for (int i = 0; i < BATCH; i++) {
    view_case *c = &cases[i];
    tt_type value = tt_view_type(&c->view), place = {.dtype = TT_I64};
    build(h, c);
    results[2 * i] = c->read_node;
    results[2 * i + 1] = c->written_node;
    ok(tt_buffer_from_host(device, &c->storage, c->before, NULL, NULL, &arguments[3 * i]));
    ok(tt_buffer_from_host(device, &value, c->value, NULL, NULL, &arguments[3 * i + 1]));
    ok(tt_buffer_from_host(device, &place, &c->view.offset, NULL, NULL, &arguments[3 * i + 2]));
  }
  tt_executable *executable = compile(h, results, 2 * BATCH);
  ok(tt_execute(executable, device, arguments, 3 * BATCH, NULL, 0, outputs, NULL));
  int wrong = 0;
  for (int i = 0; i < BATCH; i++) {
    view_case *c = &cases[i];
    tt_type value = tt_view_type(&c->view);
    bool retyped = tt_view_covers(&c->view, &c->storage) && c->view.dtype != c->storage.dtype;
    bool typed = tt_type_equal(&c->read_node->type, &value) &&
                 (retyped || tt_type_equal(&c->written_node->type, &c->storage));
    bool read = typed && same(outputs[2 * i], &value, c->read, c->view_bytes);
    bool write = typed && same(outputs[2 * i + 1], &c->written_node->type, c->after, c->bytes);
    if (!typed || !read || !write) {
      wrong++;
      print_error("%s is wrong: ", !typed ? "a type" : !read ? "reading" : "writing");
      print_case(c);
    }
  }
  for (int i = 0; i < 3 * BATCH; i++) tt_buffer_destroy(client, arguments[i]);
  for (int i = 0; i < 2 * BATCH; i++) tt_buffer_destroy(client, outputs[i]);
  tt_executable_destroy(executable);
  tt_hlo_destroy(h);
  return wrong;
}

static void try_views(void (*change)(view_case *c)) {
  int wrong = 0, count = case_count(CASES);
  view_case *cases = calloc(BATCH, sizeof *cases);
  assert_non_null(cases);
  for (int64_t done = 0; done < count; done += BATCH) {
    for (int i = 0; i < BATCH; i++) {
      random_case(&cases[i]);
      if (change) change(&cases[i]);
    }
    wrong += run_batch(cases);
  }
  free(cases);
  assert_int_equal(wrong, 0);
}

static void test_random_views(void **state) {
  (void)state;
  if (!client) skip();
  try_views(NULL);
}

static void test_moving_views(void **state) {
  (void)state;
  if (!client) skip();
  try_views(move);
  assert_int_equal(motions[TT_MOTION_NONE], 0); /* all views lie in their storages */
  print_message("%d in digits, %d flat\n", motions[TT_MOTION_DIGITS], motions[TT_MOTION_FLAT]);
  if (getenv("TT_CASES")) return;
  assert_true(motions[TT_MOTION_DIGITS] > 100 && motions[TT_MOTION_FLAT] > 10);
}

static void test_growing_views(void **state) {
  (void)state;
  if (!client) skip();
  try_views(grow);
  print_message("%d in digits, %d flat, %d shifted\n", grown[TT_MOTION_DIGITS],
                grown[TT_MOTION_FLAT], shifted);
  if (getenv("TT_CASES")) return;
  assert_true(grown[TT_MOTION_DIGITS] > 30 && grown[TT_MOTION_FLAT] > 5 && shifted > 5);
}

/* What does not lie in its storage does not move; nor does arithmetic run over. */
static void test_motion(void **state) {
  (void)state;
  tt_view row = {.dtype = TT_F32, .rank = 1, .sizes = {4}, .strides = {1}};
  tt_view window = {.dtype = TT_F32, .rank = 2, .sizes = {3, 2}, .strides = {2, 1}};
  for (row.offset = -1; row.offset < 10; row.offset++)
    assert_int_equal(tt_view_motion(&row, 10),
                     row.offset < 0 || row.offset > 6 ? TT_MOTION_NONE : TT_MOTION_DIGITS);
  for (window.offset = 0; window.offset < 6; window.offset++)
    assert_int_equal(tt_view_motion(&window, 10), window.offset > 4   ? TT_MOTION_NONE
                                                  : window.offset % 2 ? TT_MOTION_FLAT
                                                                      : TT_MOTION_DIGITS);
  row.offset = INT64_MAX;
  assert_int_equal(tt_view_motion(&row, 10), TT_MOTION_NONE);
  row = (tt_view){.dtype = TT_F32, .rank = 1, .sizes = {INT64_MAX}, .strides = {INT64_MAX}};
  assert_int_equal(tt_view_motion(&row, 10), TT_MOTION_NONE);
  row.sizes[0] = 0;
  assert_int_equal(tt_view_motion(&row, 10), TT_MOTION_DIGITS);
}

/* -- New storages -- */

static bool covers_by_counting(const view_case *c) {
  int64_t size = tt_dtype_bytes(c->view.dtype), count = view_numel(&c->view);
  if (count * size != c->bytes) return false;
  bool seen[MAX_BYTES] = {false};
  for (int64_t k = 0; k < count; k++) {
    int64_t place = place_of(&c->view, k);
    if (seen[place]) return false;
    seen[place] = true;
  }
  return true;
}

static void test_covering(void **state) {
  (void)state;
  view_case *c = calloc(1, sizeof *c);
  int covering = 0;
  assert_non_null(c);
  for (int i = 0; i < 20000; i++) {
    random_case(c);
    bool expected = covers_by_counting(c);
    covering += expected;
    if (tt_view_covers(&c->view, &c->storage) == expected) continue;
    print_case(c);
    fail();
  }
  assert_true(covering > 1000);
  free(c);
}

/* A tensor's own dense strides are kept, and its storage is laid out like them. */
static void test_dense(void **state) {
  (void)state;
  for (int i = 0; i < 5000; i++) {
    tt_view view = {.dtype = TT_F32, .rank = (int)below(6)}, dense;
    int order[TT_MAX_RANK];
    for (int k = 0; k < view.rank; k++) {
      int at = (int)below(k + 1);
      order[k] = order[at];
      order[at] = k;
      view.sizes[k] = 1 + below(4);
    }
    for (int64_t k = view.rank - 1, stride = 1; k >= 0; k--) {
      view.strides[order[k]] = stride;
      stride *= view.sizes[order[k]];
    }
    bool invalid = one_in(4) && view.rank && view.sizes[order[0]] > 1;
    if (invalid) view.strides[order[0]] += 1 + below(3);
    dense = view;
    tt_type storage;
    tt_view_dense(&dense, &storage);
    assert_int_equal(tt_type_numel(&storage), view_numel(&view));
    assert_true(tt_view_covers(&dense, &storage));
    for (int k = 0; k < view.rank; k++) {
      assert_int_equal(dense.sizes[k], view.sizes[k]);
      if (!invalid && view.sizes[k] > 1) assert_int_equal(dense.strides[k], view.strides[k]);
    }
  }
}

static void test_dense_without_elements(void **state) {
  (void)state;
  tt_view view = {.dtype = TT_F32, .rank = 3, .sizes = {0, 2, 3}, .strides = {2, 4, 0}};
  tt_view dense = view;
  tt_type storage;
  tt_view_dense(&dense, &storage);
  assert_int_equal(tt_type_numel(&storage), 0);
  assert_memory_equal(dense.strides, view.strides, sizeof view.strides);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_covering),
      cmocka_unit_test(test_dense),
      cmocka_unit_test(test_dense_without_elements),
      cmocka_unit_test(test_motion),
      cmocka_unit_test(test_random_views),
      cmocka_unit_test(test_moving_views),
      cmocka_unit_test(test_growing_views),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
