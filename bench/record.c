/* Host cost of one recorded operation: key, lookup, record, result storage; launches run beside it
 * and are waited for between bursts.
 *
 * usage: record PLUGIN_PATH [bursts] */
#include "session/session.h"

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
static tt_status record_add(tt_session *session, tt_stream *stream, tt_storage *a,
                            tt_storage **out) {
  static const tt_policy policy = {.mode = TT_MODE_STRICT};
  tt_storage *tensors[2] = {a, a};
  tt_key key;
  tt_key_init(&key);
  tt_key_u64(&key, (uint64_t)(uintptr_t)tensors[0]->type);
  tt_key_tensor(&key, a->type, a->value != NULL, -1, true, TT_F32, 1, 0, NULL, NULL);
  tt_key_tensor(&key, a->type, a->value != NULL, 0, true, TT_F32, 1, 0, NULL, NULL);
  tt_call *call = tt_call_find(session->calls, &key, NULL);
  tt_status status = TT_SUCCESS;
  if (!call) {
    tt_view view = tt_view_whole(a->type);
    tt_call_tensor both[2] = {{.storage = a->type, .view = view, .same_as = -1},
                              {.storage = a->type, .view = view, .same_as = 0}};
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
                         .result_type = TT_F32,
                         .results = &result,
                         .result_count = 1,
                         .meta_known = true};
    status = tt_call_create(session->calls, &key, &spec, &session->target, &call);
  }
  tt_key_deinit(&key);
  if (status) return status;
  return tt_stream_record(
      stream, &(tt_operation){.call = call, .tensors = tensors, .policy = &policy}, out);
}

static tt_status burst(tt_session *session, tt_stream *stream, tt_storage *a, double *us) {
  tt_storage *out[BURST];
  double start = now_us();
  for (int i = 0; i < BURST; i++) TT_TRY(record_add(session, stream, a, &out[i]));
  *us = now_us() - start;
  TT_TRY(tt_stream_sync(stream, &tt_policy_any));
  for (int i = 0; i < BURST; i++) tt_storage_release(out[i]);
  return TT_SUCCESS;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: record PLUGIN_PATH [bursts]\n"), 2;
  int bursts = argc > 2 ? atoi(argv[2]) : 200;
  tt_session *session = NULL;
  tt_stream *stream = NULL;
  tt_status status = tt_session_create(argv[1], NULL, &session);
  if (!status) status = tt_stream_get(session->devices[0], 0, &stream);
  if (status) return fail(status);
  int64_t n = 16;
  tt_type type = tt_type_make(TT_F32, 1, &n);
  float data[16] = {0};
  const tt_type *interned = NULL;
  tt_storage *a = NULL;
  status = tt_type_intern(&type, &interned);
  if (!status) status = tt_storage_create(stream->device, interned, &a);
  if (!status) status = tt_storage_write(stream, a, &type, data, &tt_policy_any, 0);
  double best = 1e30, total = 0, us = 0;
  for (int i = -3; i < bursts && !status; i++) {
    status = burst(session, stream, a, &us);
    if (i < 0) continue;
    total += us;
    if (us < best) best = us;
  }
  tt_storage_release(a);
  if (status) return fail(status);
  tt_session_destroy(session);
  printf(
      "{\"bench\": \"record\", \"us_per_op_mean\": %.3f, \"us_per_op_min\": %.3f, \"ops\": %d}\n",
      total / bursts / BURST, best / BURST, bursts * BURST);
  return 0;
}
