/* Replaying captured graphs. */
#include "stream/captured.h"

#include "stream/pending.h"
#include "stream/submit.h"

void tt_captured_destroy(tt_captured *captured) {
  if (!captured) return;
  for (int i = 0; i < captured->input_count; i++) tt_storage_release(captured->inputs[i].storage);
  for (int i = 0; i < captured->bound_output_count; i++)
    tt_storage_release(captured->outputs[i].storage);
  if (captured->program) tt_program_release(captured->program);
  tt_arena_deinit(&captured->arena);
  tt_free(captured);
}

int tt_captured_generators(const tt_captured *captured) { return captured->draw_count; }
tt_draw tt_captured_draw(const tt_captured *captured, int i) { return captured->draws[i]; }

void tt_captured_sizes(const tt_captured *captured, int *steps, int *inputs, int *outputs) {
  *steps = captured->step_count;
  *inputs = captured->input_count;
  *outputs = captured->bound_output_count;
}

/* What the storages hold, which then has a job. The lock is held. */
static tt_status find_inputs(tt_captured *captured, const tt_captured_storages *on,
                             tt_launch *launch, const tt_policy *policy, uint32_t site) {
  for (int i = 0; i < captured->input_count; i++) {
    const tt_bound *input = &captured->inputs[i];
    tt_storage *storage = on ? on->inputs[i] : input->storage;
    if (!tt_type_equal(storage->type, &input->type))
      return tt_error(TT_FAILED_PRECONDITION,
                      "a tensor that a captured graph reads has another size or dtype than when it "
                      "was captured; capture the graph again");
    if (storage->value) {
      TT_TRY(tt_value_launch(storage->value, TT_CUT_SYNC, policy));
      launch->inputs[i] = tt_value_retain(storage->value);
    } else {
      TT_TRY(tt_device_zeros(captured->device, storage->type, site, &launch->inputs[i]));
    }
  }
  return TT_SUCCESS;
}

static tt_status make_outputs(tt_captured *captured, tt_stream *stream, tt_launch *launch,
                              uint32_t site) {
  for (int i = 0; i < captured->bound_output_count; i++) {
    const tt_bound *output = &captured->outputs[i];
    tt_value **value = &launch->outputs[output->output];
    TT_TRY(tt_type_intern(&output->type, &captured->output_types[output->output]));
    if (!*value)
      TT_TRY(tt_value_create(&captured->device->account, stream,
                             captured->output_types[output->output], site, value));
  }
  return TT_SUCCESS;
}

/* The old values, which the launch may be the last to hold, go at once. */
static void write_outputs(tt_captured *captured, const tt_captured_storages *on,
                          const tt_launch *launch) {
  for (int i = 0; i < captured->bound_output_count; i++) {
    const tt_bound *output = &captured->outputs[i];
    tt_value *made = tt_value_retain(launch->outputs[output->output]);
    tt_value_release(tt_storage_hold(on ? on->outputs[i] : output->storage, made));
  }
}

static tt_status replay(tt_captured *captured, tt_stream *stream, const tt_captured_storages *on,
                        tt_launch *launch, const tt_policy *policy, uint32_t site) {
  TT_TRY(tt_stream_flush(stream, TT_CUT_SYNC, policy));
  TT_TRY(find_inputs(captured, on, launch, policy, site));
  TT_TRY(make_outputs(captured, stream, launch, site));
  write_outputs(captured, on, launch);
  tt_submit(stream->queue, launch);
  tt_count_add(TT_COUNT_GRAPH_REPLAYS, 1);
  return TT_SUCCESS;
}

tt_status tt_captured_replay(tt_captured *captured, tt_stream *stream,
                             const tt_captured_storages *on, const tt_philox_place *places,
                             const tt_policy *policy, uint32_t site) {
  TT_TRY(tt_queue_await_room(stream->queue));
  tt_launch *launch = tt_launch_create(captured->device, captured->input_count,
                                       captured->output_count, captured->words.word_count, 0);
  if (!launch) return tt_out_of_memory();
  launch->origin = (tt_origin){.program = captured->program,
                               .name = "a captured graph",
                               .site = site,
                               .captured_steps = captured->step_count};
  tt_graph_fill_words(&captured->words, NULL, places, launch->words);
  tt_guard_enter();
  tt_device_lock(stream->device);
  tt_status status = stream->capture
                         ? tt_error(TT_FAILED_PRECONDITION,
                                    "a captured graph cannot be replayed while another is captured")
                         : replay(captured, stream, on, launch, policy, site);
  tt_device_unlock(stream->device);
  tt_guard_leave();
  if (status) tt_launch_destroy(launch);
  return status;
}
