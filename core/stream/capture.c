#include "stream/capture.h"

#include "stream/capturing.h"

#include "stream/ids.h"
#include "stream/pending.h"

#include <assert.h>
#include <string.h>

uint64_t tt_stream_captured(const tt_stream *stream) {
  tt_capture *capture = __atomic_load_n(&stream->capture, __ATOMIC_ACQUIRE);
  return capture ? capture->id : 0;
}

tt_status tt_stream_new_storage(tt_stream *stream, const tt_type *type, tt_storage **out) {
  const tt_type *interned = NULL;
  tt_guard_enter();
  tt_status status = tt_type_intern(type, &interned);
  if (!status) status = tt_storage_create(stream->device, interned, out);
  tt_guard_leave();
  if (status) return status;
  (*out)->born = tt_stream_captured(stream);
  if (tt_observer_current) tt_observer_current->created(tt_observer_current, *out);
  return TT_SUCCESS;
}

tt_capture *tt_capture_create(tt_capture *outer) {
  tt_capture *capture = tt_calloc(1, sizeof *capture);
  if (!capture) return NULL;
  capture->id = tt_next_section();
  capture->outer = outer;
  capture->arena = outer ? outer->arena : &capture->own;
  return capture;
}

tt_status tt_capture_begin(tt_stream *stream, const tt_policy *policy) {
  tt_capture *capture = tt_capture_create(NULL);
  if (!capture) return tt_out_of_memory();
  tt_device_lock(stream->device);
  bool busy = stream->capture != NULL;
  tt_status status = busy ? tt_error(TT_FAILED_PRECONDITION,
                                     "this stream is captured already; end that capture first")
                          : tt_stream_flush(stream, TT_CUT_SYNC, policy);
  if (!status) __atomic_store_n(&stream->capture, capture, __ATOMIC_RELEASE);
  tt_device_unlock(stream->device);
  if (status) tt_capture_destroy(capture);
  return status;
}

/* -- Storages -- */

bool tt_capture_has(const tt_capture *capture, const tt_storage *storage) {
  return storage->value && storage->value->section == capture->id;
}

static tt_status remember(tt_capture *capture, tt_touched one) {
  TT_TRY(tt_grow((void **)&capture->touched, &capture->touched_capacity,
                 (size_t)capture->touched_count + 1, sizeof one));
  one.storage = tt_storage_retain(one.storage);
  capture->touched[capture->touched_count++] = one;
  return TT_SUCCESS;
}

tt_status tt_capture_input(tt_stream *stream, tt_capture *capture, tt_storage *storage) {
  tt_value *symbol = NULL;
  TT_TRY(tt_value_create(&stream->device->account, stream, storage->type, 0, &symbol));
  symbol->section = capture->id;
  symbol->slot = capture->slot_count;
  tt_status status = remember(capture, (tt_touched){.storage = storage,
                                                    .from_before = true,
                                                    .slot = symbol->slot,
                                                    .original = storage->value,
                                                    .type = storage->type});
  if (status) {
    tt_value_release(symbol);
    return status;
  }
  tt_type_count_storage(storage->type, 1); /* until the capture ends */
  (void)tt_storage_hold(storage, symbol);  /* `original` has the old one */
  capture->slot_count++;
  return TT_SUCCESS;
}

/* What a part reads from outside, the captures around it read, too. A storage that nobody wrote
 * reads as zeros everywhere. */
static tt_status touch(tt_stream *stream, tt_capture *capture, tt_storage *storage,
                       const tt_policy *policy) {
  if (storage->value ? tt_capture_has(capture, storage) : storage->born == capture->id)
    return TT_SUCCESS;
  if (capture->outer) TT_TRY(touch(stream, capture->outer, storage, policy));
  else if (storage->value) TT_TRY(tt_value_launch(storage->value, TT_CUT_SYNC, policy));
  if (capture->outer && !storage->value) return TT_SUCCESS;
  return tt_capture_input(stream, capture, storage);
}

tt_status tt_capture_touch(tt_stream *stream, tt_storage *storage, const tt_policy *policy) {
  tt_device_lock(stream->device);
  tt_status status = stream->capture ? touch(stream, stream->capture, storage, policy) : TT_SUCCESS;
  tt_device_unlock(stream->device);
  return status;
}

/* -- Steps -- */

static tt_status add_scalar(tt_capture *capture, tt_scalar scalar) {
  TT_TRY(tt_grow((void **)&capture->scalars, &capture->scalar_capacity,
                 (size_t)capture->scalar_count + 1, sizeof scalar));
  capture->scalars[capture->scalar_count++] = scalar;
  return TT_SUCCESS;
}

/* Which of the generators it is, and where the draw lies in its stream. */
static tt_status add_draw(tt_capture *capture, const tt_draw *draw, tt_scalar *out) {
  int i = 0;
  while (i < capture->draw_count && capture->draws[i].generator != draw->generator) i++;
  if (i == capture->draw_count) {
    TT_TRY(tt_grow((void **)&capture->draws, &capture->draw_capacity, (size_t)i + 1, sizeof *draw));
    capture->draws[capture->draw_count++] = (tt_draw){.generator = draw->generator};
  }
  out->stream = i;
  out->block = capture->draws[i].blocks;
  capture->draws[i].blocks += draw->blocks;
  return TT_SUCCESS;
}

/* Those of a call that holds others. */
static tt_status add_inner(tt_capture *capture, const tt_inner *inner) {
  for (int i = 0; i < inner->draw_count; i++) {
    tt_scalar where = {.stream = 0};
    TT_TRY(add_draw(capture, &inner->draws[i], &where));
    for (int k = 0; k < inner->scalar_count; k++) {
      tt_scalar scalar = inner->scalars[k];
      if (scalar.kind != TT_SCALAR_PHILOX || scalar.stream != i) continue;
      scalar.at += capture->word_count;
      scalar.stream = where.stream;
      scalar.block += where.block;
      TT_TRY(add_scalar(capture, scalar));
    }
  }
  for (int k = 0; k < inner->scalar_count; k++) {
    tt_scalar scalar = inner->scalars[k];
    scalar.at += capture->word_count;
    if (scalar.kind != TT_SCALAR_PHILOX) TT_TRY(add_scalar(capture, scalar));
  }
  return TT_SUCCESS;
}

static tt_status add_words(tt_capture *capture, const tt_operation *op) {
  if (op->inner) return add_inner(capture, op->inner);
  int count = op->call->word_count, drawn = op->draw ? 4 : 0;
  for (int i = 0; i < count - drawn; i++)
    TT_TRY(add_scalar(capture, (tt_scalar){.kind = TT_SCALAR_CONSTANT,
                                           .at = capture->word_count + i,
                                           .count = 1,
                                           .words = {op->scalars[i]}}));
  if (!drawn) return TT_SUCCESS;
  tt_scalar place = {
      .kind = TT_SCALAR_PHILOX, .at = capture->word_count + count - drawn, .count = drawn};
  TT_TRY(add_draw(capture, op->draw, &place));
  return add_scalar(capture, place);
}

static tt_status new_step(tt_capture *capture, const tt_call *call, int **inputs) {
  TT_TRY(tt_grow((void **)&capture->steps, &capture->step_capacity, (size_t)capture->step_count + 1,
                 sizeof *capture->steps));
  *inputs = tt_arena_alloc(capture->arena, sizeof **inputs * ((size_t)call->input_count + 1));
  return *inputs ? TT_SUCCESS : tt_out_of_memory();
}

/* New storages are told from those that the capture knows when it ends: by their symbols. */
tt_status tt_capture_record(tt_stream *stream, const tt_operation *op, tt_value *const *inputs,
                            tt_value *const *outputs) {
  tt_capture *capture = stream->capture;
  tt_call *call = op->call;
  int *slots = NULL;
  TT_TRY(new_step(capture, call, &slots));
  for (int i = 0; i < call->input_count; i++) {
    if (inputs[i]->section != capture->id)
      return tt_error(TT_FAILED_PRECONDITION,
                      "%s: a tensor is used in a graph that is captured on another stream",
                      call->name);
    slots[i] = inputs[i]->slot;
  }
  TT_TRY(add_words(capture, op));
  capture->steps[capture->step_count++] = (tt_step){.call = call,
                                                    .inputs = slots,
                                                    .first_output = capture->slot_count,
                                                    .word_at = capture->word_count};
  capture->word_count += call->word_count;
  for (int i = 0; i < call->output_count; i++) {
    outputs[i]->section = capture->id;
    outputs[i]->slot = capture->slot_count++;
  }
  return TT_SUCCESS;
}

tt_status tt_capture_keep(tt_stream *stream, tt_storage *storage) {
  tt_capture *capture = stream->capture;
  for (int i = capture->touched_count - 1; i >= 0; i--)
    if (capture->touched[i].storage == storage) return TT_SUCCESS;
  return remember(capture, (tt_touched){.storage = storage, .slot = -1});
}

/* -- Ending -- */

/* Its storage outlives the capture, and was written in it. */
static bool is_output(const tt_capture *capture, const tt_touched *one) {
  if (!tt_capture_has(capture, one->storage)) return false;
  if (one->from_before) return one->storage->value->slot != one->slot;
  return !tt_storage_unique(one->storage);
}

static tt_status bind_outputs(tt_captured *made, const tt_capture *capture) {
  size_t count = (size_t)capture->touched_count + 1;
  made->outputs = tt_arena_alloc(&made->arena, count * sizeof *made->outputs);
  if (!made->outputs) return tt_out_of_memory();
  for (int i = 0; i < capture->touched_count; i++) {
    const tt_touched *one = &capture->touched[i];
    if (is_output(capture, one))
      made->outputs[made->output_count++] =
          (tt_bound){.storage = tt_storage_retain(one->storage), .type = *one->storage->type};
  }
  return TT_SUCCESS;
}

/* Those that a step reads; they were given slots in the order in which they were touched. */
static tt_status bind_inputs(tt_captured *made, const tt_capture *capture, const tt_graph *graph) {
  size_t count = (size_t)graph->input_count + 1;
  made->inputs = tt_arena_alloc(&made->arena, count * sizeof *made->inputs);
  if (!made->inputs) return tt_out_of_memory();
  for (int i = 0; i < capture->touched_count; i++) {
    const tt_touched *one = &capture->touched[i];
    int at = made->input_count;
    if (!one->from_before || at == graph->input_count || graph->inputs[at] != one->slot) continue;
    made->inputs[made->input_count++] =
        (tt_bound){.storage = tt_storage_retain(one->storage), .type = *one->type};
  }
  assert(made->input_count == graph->input_count);
  return TT_SUCCESS;
}

static tt_status build(tt_captured *made, tt_capture *capture, const tt_policy *policy) {
  uint8_t *live = tt_arena_alloc(capture->arena, (size_t)capture->slot_count + 1);
  tt_graph *graph = NULL;
  int *value_of = NULL;
  if (!live) return tt_out_of_memory();
  for (int i = 0; i < made->output_count; i++) live[made->outputs[i].storage->value->slot] = 1;
  TT_TRY(tt_graph_create(capture->arena, capture->steps, capture->step_count, capture->slot_count,
                         live, &graph));
  graph->options = policy->options;
  TT_TRY(bind_inputs(made, capture, graph));
  made->step_count = graph->step_count;
  TT_TRY(tt_divided_init(&made->divided, &made->arena, made->device->programs, graph, policy,
                         capture->arena, &value_of));
  for (int i = 0; i < made->output_count; i++)
    made->outputs[i].value = value_of[made->outputs[i].storage->value->slot];
  return TT_SUCCESS;
}

static tt_status keep_words(tt_captured *made, const tt_capture *capture) {
  size_t scalars = sizeof *capture->scalars * (size_t)capture->scalar_count;
  size_t draws = sizeof *capture->draws * (size_t)capture->draw_count;
  tt_scalar *kept = tt_arena_alloc(&made->arena, scalars + 1);
  made->draws = tt_arena_alloc(&made->arena, draws + 1);
  if (!kept || !made->draws) return tt_out_of_memory();
  if (scalars) memcpy(kept, capture->scalars, scalars);
  if (draws) memcpy(made->draws, capture->draws, draws);
  made->draw_count = capture->draw_count;
  made->words = (tt_graph){
      .word_count = capture->word_count, .scalar_count = capture->scalar_count, .scalars = kept};
  return TT_SUCCESS;
}

/* The lock is held. */
static tt_status make(tt_stream *stream, tt_capture *capture, const tt_policy *policy,
                      tt_captured **out) {
  if (capture->step_count == 0) return TT_SUCCESS;
  tt_captured *made = tt_calloc(1, sizeof *made);
  if (!made) return tt_out_of_memory();
  made->device = stream->device;
  tt_status status = bind_outputs(made, capture);
  if (!status && made->output_count) status = build(made, capture, policy);
  if (!status) status = keep_words(made, capture);
  if (status || !made->output_count) tt_captured_destroy(made);
  else *out = made;
  return status;
}

/* What is let go of is let go of without the lock. */
static void restore(tt_capture *capture) {
  for (int i = capture->touched_count - 1; i >= 0; i--) {
    tt_touched *one = &capture->touched[i];
    one->symbol = tt_storage_hold(one->storage, one->original);
    if (!one->from_before) continue;
    tt_storage_set_type(one->storage, one->type);
    tt_type_count_storage(one->type, -1);
  }
}

tt_capture *tt_capture_take(tt_stream *stream) {
  tt_capture *capture = stream->capture;
  if (!capture) return NULL;
  restore(capture);
  __atomic_store_n(&stream->capture, capture->outer, __ATOMIC_RELEASE);
  return capture;
}

void tt_capture_destroy(tt_capture *capture) {
  for (int i = 0; i < capture->touched_count; i++) {
    tt_value_release(capture->touched[i].symbol);
    tt_storage_release(capture->touched[i].storage);
  }
  tt_arena_deinit(&capture->own);
  tt_free(capture->steps);
  tt_free(capture->touched);
  tt_free(capture->scalars);
  tt_free(capture->draws);
  tt_free(capture);
}

tt_status tt_capture_end(tt_stream *stream, const tt_policy *policy, tt_captured **out) {
  tt_status status = TT_SUCCESS;
  *out = NULL;
  tt_device_lock(stream->device);
  tt_capture *capture = stream->capture;
  if (!capture) status = tt_error(TT_FAILED_PRECONDITION, "this stream is not captured");
  else if (capture->outer)
    status = tt_error(TT_FAILED_PRECONDITION, "a part of this graph is still being captured");
  else status = make(stream, capture, policy, out);
  if (capture && !capture->outer) tt_capture_take(stream);
  tt_device_unlock(stream->device);
  if (capture && capture->outer) tt_capture_abandon(stream);
  else if (capture) tt_capture_destroy(capture);
  if (*out) tt_count_add(TT_COUNT_CAPTURES, 1);
  return status;
}

void tt_capture_abandon(tt_stream *stream) {
  for (bool more = true; more;) {
    tt_device_lock(stream->device);
    tt_capture *capture = tt_capture_take(stream);
    more = stream->capture != NULL;
    tt_device_unlock(stream->device);
    if (capture) tt_capture_destroy(capture);
  }
}

void tt_device_abandon_captures(tt_device *device) {
  for (int i = 0; i < TT_DEVICE_STREAMS; i++) {
    tt_stream *stream = __atomic_load_n(&device->streams[i], __ATOMIC_ACQUIRE);
    if (stream) tt_capture_abandon(stream);
  }
}
