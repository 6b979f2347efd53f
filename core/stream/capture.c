#include "stream/capture.h"

#include "stream/capturing.h"

#include "stream/ids.h"
#include "stream/pending.h"

#include <assert.h>
#include <string.h>

/* A storage that has a symbol. */
typedef struct touched {
  tt_storage *storage; /* one reference */
  bool from_before;    /* an input */
  int slot;            /* of the input */
  tt_value *original;  /* of one from before: what it held; one reference */
  const tt_type *type; /* likewise */
  tt_value *symbol;    /* at the end: what it held; one reference */
} touched;

struct tt_capture {
  uint64_t id;
  tt_arena arena;
  tt_step *steps;
  size_t step_capacity, touched_capacity, scalar_capacity, draw_capacity;
  touched *touched;
  tt_scalar *scalars;
  tt_draw *draws;
  int step_count, slot_count, touched_count, scalar_count, draw_count, word_count;
};

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

tt_status tt_capture_begin(tt_stream *stream, const tt_policy *policy) {
  tt_capture *capture = tt_calloc(1, sizeof *capture);
  if (!capture) return tt_out_of_memory();
  capture->id = tt_next_section();
  tt_device_lock(stream->device);
  bool busy = stream->capture != NULL;
  tt_status status = busy ? tt_error(TT_FAILED_PRECONDITION,
                                     "this stream is captured already; end that capture first")
                          : tt_stream_flush(stream, TT_CUT_SYNC, policy);
  if (!status) __atomic_store_n(&stream->capture, capture, __ATOMIC_RELEASE);
  tt_device_unlock(stream->device);
  if (!status) return TT_SUCCESS;
  tt_free(capture);
  return status;
}

/* -- Storages -- */

static bool has_symbol(const tt_capture *capture, const tt_storage *storage) {
  return storage->value && storage->value->section == capture->id;
}

static tt_status remember(tt_capture *capture, touched one) {
  TT_TRY(tt_grow((void **)&capture->touched, &capture->touched_capacity,
                 (size_t)capture->touched_count + 1, sizeof one));
  one.storage = tt_storage_retain(one.storage);
  capture->touched[capture->touched_count++] = one;
  return TT_SUCCESS;
}

/* The lock is held. */
static tt_status make_input(tt_stream *stream, tt_capture *capture, tt_storage *storage) {
  tt_value *symbol = NULL;
  TT_TRY(tt_value_create(&stream->device->account, stream, storage->type, 0, &symbol));
  symbol->section = capture->id;
  symbol->slot = capture->slot_count;
  tt_status status = remember(capture, (touched){.storage = storage,
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

tt_status tt_capture_touch(tt_stream *stream, tt_storage *storage, const tt_policy *policy) {
  tt_status status = TT_SUCCESS;
  tt_device_lock(stream->device);
  tt_capture *capture = stream->capture;
  bool known =
      capture && (storage->value ? has_symbol(capture, storage) : storage->born == capture->id);
  if (capture && !known) {
    if (storage->value) status = tt_value_launch(storage->value, TT_CUT_SYNC, policy);
    if (!status) status = make_input(stream, capture, storage);
  }
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

static tt_status add_words(tt_capture *capture, const tt_operation *op) {
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
  *inputs = tt_arena_alloc(&capture->arena, sizeof **inputs * ((size_t)call->input_count + 1));
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
  return remember(capture, (touched){.storage = storage, .slot = -1});
}

/* -- Ending -- */

/* Its storage outlives the capture, and was written in it. */
static bool is_output(const tt_capture *capture, const touched *one) {
  if (!has_symbol(capture, one->storage)) return false;
  if (one->from_before) return one->storage->value->slot != one->slot;
  return !tt_storage_unique(one->storage);
}

static tt_status bind_outputs(tt_captured *made, const tt_capture *capture) {
  size_t count = (size_t)capture->touched_count + 1;
  made->outputs = tt_arena_alloc(&made->arena, count * sizeof *made->outputs);
  if (!made->outputs) return tt_out_of_memory();
  for (int i = 0; i < capture->touched_count; i++) {
    const touched *one = &capture->touched[i];
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
    const touched *one = &capture->touched[i];
    int at = made->input_count;
    if (!one->from_before || at == graph->input_count || graph->inputs[at] != one->slot) continue;
    made->inputs[made->input_count++] =
        (tt_bound){.storage = tt_storage_retain(one->storage), .type = *one->type};
  }
  assert(made->input_count == graph->input_count);
  return TT_SUCCESS;
}

static tt_status build(tt_captured *made, tt_capture *capture, const tt_policy *policy) {
  uint8_t *live = tt_arena_alloc(&capture->arena, (size_t)capture->slot_count + 1);
  tt_graph *graph = NULL;
  int *value_of = NULL;
  if (!live) return tt_out_of_memory();
  for (int i = 0; i < made->output_count; i++) live[made->outputs[i].storage->value->slot] = 1;
  TT_TRY(tt_graph_create(&capture->arena, capture->steps, capture->step_count, capture->slot_count,
                         live, &graph));
  TT_TRY(bind_inputs(made, capture, graph));
  made->step_count = graph->step_count;
  TT_TRY(tt_divided_init(&made->divided, &made->arena, made->device->programs, graph, policy,
                         &capture->arena, &value_of));
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

/* Storages from before hold again what they held, when they were touched first; new ones hold
 * nothing until the first replay. The lock is held; what is let go of is let go of without it. */
static void restore(tt_capture *capture) {
  for (int i = capture->touched_count - 1; i >= 0; i--) {
    touched *one = &capture->touched[i];
    one->symbol = tt_storage_hold(one->storage, one->original);
    if (!one->from_before) continue;
    tt_storage_set_type(one->storage, one->type);
    tt_type_count_storage(one->type, -1);
  }
}

/* The stream's capture, of which it is rid; NULL: there is none. The lock is held. */
static tt_capture *take(tt_stream *stream) {
  tt_capture *capture = stream->capture;
  __atomic_store_n(&stream->capture, NULL, __ATOMIC_RELEASE);
  return capture;
}

static void destroy(tt_capture *capture) {
  for (int i = 0; i < capture->touched_count; i++) {
    tt_value_release(capture->touched[i].symbol);
    tt_storage_release(capture->touched[i].storage);
  }
  tt_arena_deinit(&capture->arena);
  tt_free(capture->steps);
  tt_free(capture->touched);
  tt_free(capture->scalars);
  tt_free(capture->draws);
  tt_free(capture);
}

tt_status tt_capture_end(tt_stream *stream, const tt_policy *policy, tt_captured **out) {
  *out = NULL;
  tt_device_lock(stream->device);
  tt_capture *capture = take(stream);
  tt_status status = capture ? make(stream, capture, policy, out)
                             : tt_error(TT_FAILED_PRECONDITION, "this stream is not captured");
  if (capture) restore(capture);
  tt_device_unlock(stream->device);
  if (capture) destroy(capture);
  if (*out) tt_count_add(TT_COUNT_CAPTURES, 1);
  return status;
}

void tt_capture_abandon(tt_stream *stream) {
  tt_device_lock(stream->device);
  tt_capture *capture = take(stream);
  if (capture) restore(capture);
  tt_device_unlock(stream->device);
  if (capture) destroy(capture);
}

void tt_device_abandon_captures(tt_device *device) {
  for (int i = 0; i < TT_DEVICE_STREAMS; i++) {
    tt_stream *stream = __atomic_load_n(&device->streams[i], __ATOMIC_ACQUIRE);
    if (stream) tt_capture_abandon(stream);
  }
}
