/* Host cost of one recorded operation: key, lookup, record, result storage; launches run beside it
 * and are waited for between bursts.
 *
 * usage: record PLUGIN_PATH [bursts] */
#include "run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BURST = 512 }; /* half the queue, so that recording never waits */

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int fail(tt_status status) {
  fprintf(stderr, "record: %s\n", tt_status_message(status));
  tt_status_release(status);
  return 1;
}

/* add.Tensor(a, a, alpha=1) as the glue would record it. */
static tt_status record_add(tt_stream *stream, tt_storage *a, tt_storage **out) {
  tt_storage *tensors[2] = {a, a};
  tt_key key;
  tt_key_init(&key);
  tt_key_u64(&key, (uint64_t)(uintptr_t)tensors[0]->type);
  tt_key_tensor(&key, a, -1, true, TT_F32, 1, 0, NULL, NULL);
  tt_key_tensor(&key, a, 0, true, TT_F32, 1, 0, NULL, NULL);
  tt_call *call = tt_call_find(&key);
  tt_status status = TT_SUCCESS;
  if (!call) {
    tt_view view = tt_view_whole(a->type);
    tt_call_tensor both[2] = {{a->type, view, false, -1}, {a->type, view, false, 0}};
    tt_arg args[3] = {{.kind = TT_ARG_TENSOR, .first = 0},
                      {.kind = TT_ARG_TENSOR, .first = 1},
                      {.kind = TT_ARG_INT, .i = 1, .dtype = TT_I64}};
    tt_call_result result = {.target = -1, .view = view};
    tt_call_spec spec = {.row = tt_op_find("add.Tensor"),
                         .name = "aten::add.Tensor",
                         .args = args,
                         .arg_count = 3,
                         .tensors = both,
                         .tensor_count = 2,
                         .common = TT_F32,
                         .results = &result,
                         .result_count = 1,
                         .promised = true};
    status = tt_call_create(&key, &spec, &call);
  }
  tt_key_deinit(&key);
  return status ? status : tt_stream_record(stream, call, tensors, NULL, 0, out);
}

static tt_status burst(tt_stream *stream, tt_storage *a, double *us) {
  tt_storage *out[BURST];
  double start = now_us();
  for (int i = 0; i < BURST; i++) TT_TRY(record_add(stream, a, &out[i]));
  *us = now_us() - start;
  TT_TRY(tt_stream_sync(stream));
  for (int i = 0; i < BURST; i++) tt_storage_release(out[i]);
  return TT_SUCCESS;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: record PLUGIN_PATH [bursts]\n"), 2;
  int bursts = argc > 2 ? atoi(argv[2]) : 200;
  tt_status status = tt_runtime_init(argv[1]);
  if (status) return fail(status);
  tt_stream *stream = tt_runtime_stream(0);
  int64_t n = 16;
  tt_type type = tt_type_make(TT_F32, 1, &n);
  float data[16] = {0};
  const tt_type *interned = NULL;
  tt_storage *a = NULL;
  status = tt_type_intern(&type, &interned);
  if (!status) status = tt_storage_create(stream, interned, &a);
  if (!status) status = tt_storage_write(a, &type, data, 0);
  double best = 1e30, total = 0, us = 0;
  for (int i = -3; i < bursts && !status; i++) {
    status = burst(stream, a, &us);
    if (i < 0) continue;
    total += us;
    if (us < best) best = us;
  }
  tt_storage_release(a);
  if (status) return fail(status);
  printf(
      "{\"bench\": \"record\", \"us_per_op_mean\": %.3f, \"us_per_op_min\": %.3f, \"ops\": %d}\n",
      total / bursts / BURST, best / BURST, bursts * BURST);
  return 0;
}
