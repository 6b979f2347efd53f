/* Replaying captured graphs. */
#include "stream/captured.h"

#include "call/bounded.h"
#include "stream/pending.h"
#include "stream/submit.h"

void tt_captured_destroy(tt_captured *captured) {
  if (!captured) return;
  for (int i = 0; i < captured->input_count; i++) tt_storage_release(captured->inputs[i].storage);
  for (int i = 0; i < captured->output_count; i++) tt_storage_release(captured->outputs[i].storage);
  tt_divided_deinit(&captured->divided);
  tt_arena_deinit(&captured->arena);
  tt_free(captured);
}

int tt_captured_generators(const tt_captured *captured) { return captured->draw_count; }
tt_draw tt_captured_draw(const tt_captured *captured, int i) { return captured->draws[i]; }

void tt_captured_sizes(const tt_captured *captured, int *steps, int *inputs, int *outputs) {
  *steps = captured->step_count;
  *inputs = captured->input_count;
  *outputs = captured->output_count;
}

/* -- Replaying -- */

typedef struct replay {
  tt_captured *captured;
  tt_stream *stream;
  const tt_captured_storages *on;
  const tt_policy *policy;
  uint32_t site;
  tt_value **values; /* [value_count] one reference each, until the launches have theirs */
  uint32_t *words;
  tt_launch *first; /* of a list */
} replay;

static tt_status prepare(replay *r, const tt_philox_place *places) {
  const tt_captured *captured = r->captured;
  tt_origin origin = {
      .name = "a captured graph", .site = r->site, .captured_steps = captured->step_count};
  r->values = tt_calloc((size_t)captured->divided.value_count, sizeof(tt_value *));
  r->words = tt_malloc(sizeof *r->words * ((size_t)captured->words.word_count + 1));
  if (!r->values || !r->words) return tt_out_of_memory();
  tt_graph_fill_words(&captured->words, NULL, places, r->words);
  return tt_divided_launches(&captured->divided, captured->device, r->words, &origin, &r->first);
}

static void let_go(replay *r) {
  for (int i = 0; r->values && i < r->captured->divided.value_count; i++)
    tt_value_release(r->values[i]);
  tt_free(r->values);
  tt_free(r->words);
  r->values = NULL;
  r->words = NULL;
}

bool tt_captured_takes_padding(const tt_captured *captured, int i, const tt_storage *storage) {
  return storage->bounded && tt_type_equal(storage->bounded, &captured->inputs[i].type);
}

/* What the storages hold, which then has a job. The lock is held. */
static tt_status find_inputs(replay *r) {
  for (int i = 0; i < r->captured->input_count; i++) {
    const tt_bound *input = &r->captured->inputs[i];
    tt_storage *storage = r->on ? r->on->inputs[i] : input->storage;
    bool padded = r->on && tt_captured_takes_padding(r->captured, i, storage);
    if (!padded && !tt_type_equal(storage->type, &input->type))
      return tt_error(TT_FAILED_PRECONDITION,
                      "a tensor that a captured graph reads has another size or dtype than when it "
                      "was captured; capture the graph again");
    if (storage->value) {
      TT_TRY(tt_value_launch(storage->value, TT_CUT_SYNC, r->policy));
      r->values[i] = tt_value_retain(storage->value);
    } else {
      TT_TRY(tt_device_zeros(r->captured->device, storage->type, r->site, &r->values[i]));
    }
  }
  return TT_SUCCESS;
}

static tt_status bound_output(replay *r, int i) {
  const tt_captured_length *one = &r->on->lengths[i];
  tt_value *value = r->values[r->captured->outputs[one->output].value];
  tt_along along = tt_along_one(one->dim);
  tt_reach reach = tt_reach_one(one->length);
  TT_TRY(tt_type_intern_bounded(value->holding.type, &along, &value->holding.type));
  return tt_value_set_reach(value, &reach);
}

static tt_status make_values(replay *r) {
  const tt_divided *divided = &r->captured->divided;
  for (int i = r->captured->input_count; i < divided->value_count; i++) {
    const tt_type *type = NULL;
    TT_TRY(tt_type_intern(&divided->types[i], &type));
    TT_TRY(tt_value_create(&r->captured->device->account, r->stream, type, r->site, &r->values[i]));
  }
  for (int i = 0; r->on && i < r->on->length_count; i++) TT_TRY(bound_output(r, i));
  return TT_SUCCESS;
}

/* The old values, which a launch may be the last to hold, go at once. */
static void write_outputs(const replay *r) {
  for (int i = 0; i < r->captured->output_count; i++) {
    const tt_bound *output = &r->captured->outputs[i];
    tt_value *made = tt_value_retain(r->values[output->value]);
    tt_value_release(tt_storage_hold(r->on ? r->on->outputs[i] : output->storage, made));
  }
}

/* The lock is held. */
static tt_status launch(replay *r) {
  if (r->stream->capture)
    return tt_error(TT_FAILED_PRECONDITION,
                    "a captured graph cannot be replayed while another is captured");
  TT_TRY(tt_stream_flush(r->stream, TT_CUT_SYNC, r->policy));
  TT_TRY(find_inputs(r));
  TT_TRY(make_values(r));
  tt_divided_bind(&r->captured->divided, r->values, r->first);
  write_outputs(r);
  let_go(r);
  for (tt_launch *next; r->first; r->first = next) {
    next = r->first->next;
    tt_submit(r->stream->queue, r->first);
  }
  tt_count_add(TT_COUNT_GRAPH_REPLAYS, 1);
  return TT_SUCCESS;
}

tt_status tt_captured_replay(tt_captured *captured, tt_stream *stream,
                             const tt_captured_storages *on, const tt_philox_place *places,
                             const tt_policy *policy, uint32_t site) {
  replay r = {.captured = captured, .stream = stream, .on = on, .policy = policy, .site = site};
  TT_TRY(tt_queue_await_room(stream->queue));
  tt_status status = prepare(&r, places);
  if (!status) {
    tt_guard_enter();
    tt_device_lock(stream->device);
    status = launch(&r);
    tt_device_unlock(stream->device);
    tt_guard_leave();
  }
  let_go(&r);
  tt_launch_destroy_list(r.first);
  return status;
}
