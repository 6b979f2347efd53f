#include "numbers.h"

#include "accel_plugin/accel.h"
#include "ops/lower.h"

#include <dlfcn.h>
#include <stdio.h>

static int64_t (*count_accel)(const char *what);
static int64_t (*live_accel)(void);
static bool on_accel;

static const char *accel_path(int seed) {
  char text[16];
  const char *path = getenv("TT_ACCEL_PLUGIN");
  void *library = path ? dlopen(path, RTLD_NOW) : NULL;
  if (!library) return NULL;
  *(void **)&count_accel = dlsym(library, "tt_accel_count");
  *(void **)&live_accel = dlsym(library, "tt_accel_live_objects");
  snprintf(text, sizeof text, "%d", seed);
  setenv("TT_ACCEL_SEED", text, 1);
  setenv("TT_ACCEL_DEVICES", "2", 1);
  return path;
}

bool numbers_open(int plugin) {
  const char *cpu = getenv("TT_CPU_PLUGIN");
  if (!cpu || !*cpu) return false;
  setenv("TORCH_TPU_CACHE", "off", 1);
  setenv("TORCH_TPU_CPU_DEVICES", "2", 1);
  on_accel = plugin > 0;
  const char *path = on_accel ? accel_path(plugin) : cpu;
  if (!path) return false;
  policy = (tt_policy){.mode = TT_MODE_STRICT};
  ok(session_open(path));
  assert_int_equal(session->device_count, 2);
  return true;
}

int numbers_close(void) {
  session_close();
  return on_accel && live_accel() ? -1 : 0;
}

int64_t accel_count(const char *what) { return on_accel ? count_accel(what) : 0; }

/* -- Floats -- */

tt_storage *floats_of(tt_stream *stream, int64_t n, const float *values) {
  return storage_of(stream, tt_type_make(TT_F32, 1, &n), values);
}

void expect(tt_storage *storage, int64_t n, const float *values) {
  float got[64] = {0};
  assert_int_equal(tt_type_numel(storage->type), n);
  ok(storage_read(storage, got, tt_storage_bytes(storage)));
  for (int64_t i = 0; i < n; i++)
    if (got[i] != values[i])
      fail_msg("element %d is %g, expected %g", (int)i, (double)got[i], (double)values[i]);
}

/* -- Draws -- */

static void lower_draw(tt_lower *cx) {
  int64_t one = 1;
  tt_node *parts[2] = {tt_hlo_reshape(cx->h, cx->seed, 1, &one),
                       tt_hlo_reshape(cx->h, cx->offset, 1, &one)};
  tt_out(cx, 0, tt_hlo_concatenate(cx->h, parts, 2, 0));
}
static const tt_op_row draw_row = {
    .name = "test.draw", .cls = TT_RANDOM, .lower = lower_draw, .statics = "", .doc = ""};

tt_status record_draw(tt_stream *stream, const void *generator, int64_t blocks,
                      tt_philox_place place, tt_storage **out) {
  tt_storage *results[REQUEST_MAX] = {NULL};
  request r = {.row = &draw_row,
               .arg_count = 2,
               .args = {{.kind = TT_ARG_SCALAR, .first = 0, .dtype = TT_I64},
                        {.kind = TT_ARG_SCALAR, .first = 1, .dtype = TT_I64}},
               .scalar_count = 2,
               .scalars = {TT_I64, TT_I64},
               .result = type_of(TT_I64, 1, DIMS(2)),
               .draw = {.generator = generator, .blocks = blocks}};
  memcpy(r.words, &place, sizeof place);
  TT_TRY(request_record(stream, &r, results));
  *out = results[0];
  return TT_SUCCESS;
}

void expect_place(tt_storage *storage, uint64_t seed, uint64_t offset) {
  uint64_t got[2] = {0};
  ok(storage_read(storage, got, sizeof got));
  assert_true(got[0] == seed && got[1] == offset);
}
