#include "stream/nested.h"

#include "graph/region.h"
#include "stream/capture.h"
#include "stream/capturing.h"

#include <string.h>

struct tt_nested {
  tt_subgraph graph;
  tt_storage **outers; /* [graph.outer_count] which the captures around it hold */
  tt_draw *draws;      /* [graph.stream_count] */
};

/* -- Capturing -- */

static tt_status no_part(void) {
  return tt_error(TT_FAILED_PRECONDITION, "no part of a graph is being captured on this stream");
}

tt_status tt_nested_begin(tt_stream *stream) {
  tt_status status = TT_SUCCESS;
  tt_device_lock(stream->device);
  if (!stream->capture) {
    status = tt_error(TT_FAILED_PRECONDITION, "a part of a graph is captured while the graph is");
  } else {
    tt_capture *part = tt_capture_create(stream->capture);
    if (part) __atomic_store_n(&stream->capture, part, __ATOMIC_RELEASE);
    else status = tt_out_of_memory();
  }
  tt_device_unlock(stream->device);
  return status;
}

tt_status tt_nested_argument(tt_stream *stream, tt_storage *storage) {
  tt_device_lock(stream->device);
  tt_capture *part = stream->capture;
  tt_status status = part && part->outer ? tt_capture_input(stream, part, storage) : no_part();
  if (!status) part->argument_count++;
  tt_device_unlock(stream->device);
  return status;
}

static bool wrote(const tt_capture *part, const tt_touched *one) {
  if (!tt_capture_has(part, one->storage)) return false;
  return one->from_before ? one->storage->value->slot != one->slot : one->storage->born != part->id;
}

bool tt_nested_wrote(tt_stream *stream, const tt_storage *storage) {
  bool found = false;
  tt_device_lock(stream->device);
  const tt_capture *part = stream->capture;
  for (int i = 0; part && i < part->touched_count; i++)
    found |= part->touched[i].storage == storage && wrote(part, &part->touched[i]);
  tt_device_unlock(stream->device);
  return found;
}

/* Nobody may have written what is from outside, and no argument. */
static tt_status check_writes(const tt_capture *part) {
  for (int i = part->argument_count; i < part->touched_count; i++)
    if (wrote(part, &part->touched[i]))
      return tt_error(TT_FAILED_PRECONDITION,
                      "a branch or loop writes a tensor from outside in place");
  return TT_SUCCESS;
}

static void *room(tt_capture *part, size_t count, size_t size) {
  size_t bytes = 0;
  return tt_mul_size(count + 1, size, &bytes) ? tt_arena_alloc(part->arena, bytes) : NULL;
}

static tt_status add_inputs(tt_capture *part, tt_nested *made) {
  tt_subgraph *graph = &made->graph;
  size_t most = (size_t)part->touched_count;
  int *outers = room(part, most, sizeof *outers);
  graph->types = room(part, most, sizeof *graph->types);
  graph->outside = room(part, most, sizeof *graph->outside);
  made->outers = room(part, most, sizeof *made->outers);
  if (!outers || !graph->types || !graph->outside || !made->outers) return tt_out_of_memory();
  for (int i = 0; i < part->touched_count; i++) {
    const tt_touched *one = &part->touched[i];
    if (!one->from_before) continue;
    if (graph->argument_count < part->argument_count) {
      graph->types[graph->argument_count++] = one->type;
      continue;
    }
    made->outers[graph->outer_count] = one->storage;
    graph->outside[graph->outer_count] = one->type;
    outers[graph->outer_count++] = one->slot;
  }
  graph->outers = outers;
  return TT_SUCCESS;
}

static tt_status add_results(tt_capture *part, tt_nested *made, tt_storage *const *results,
                             int count) {
  tt_subgraph *graph = &made->graph;
  int *slots = room(part, (size_t)count, sizeof *slots);
  graph->result_types = room(part, (size_t)count, sizeof *graph->result_types);
  if (!slots || !graph->result_types) return tt_out_of_memory();
  for (int i = 0; i < count; i++) {
    if (!tt_capture_has(part, results[i]) || tt_value_is_bounded(results[i]->value))
      return tt_error(TT_INVALID_ARGUMENT, "result %d of a branch or loop is not computed in it",
                      i);
    slots[i] = results[i]->value->slot;
    graph->result_types[i] = results[i]->type;
  }
  graph->results = slots;
  graph->result_count = count;
  return TT_SUCCESS;
}

static tt_status add_steps(tt_capture *part, tt_nested *made) {
  tt_subgraph *graph = &made->graph;
  size_t steps = (size_t)part->step_count, scalars = (size_t)part->scalar_count;
  size_t draws = (size_t)part->draw_count;
  tt_step *step_copy = room(part, steps, sizeof *part->steps);
  tt_scalar *scalar_copy = room(part, scalars, sizeof *part->scalars);
  int64_t *blocks = room(part, draws, sizeof *blocks);
  made->draws = room(part, draws, sizeof *made->draws);
  if (!step_copy || !scalar_copy || !blocks || !made->draws) return tt_out_of_memory();
  if (steps) memcpy(step_copy, part->steps, steps * sizeof *step_copy);
  if (scalars) memcpy(scalar_copy, part->scalars, scalars * sizeof *scalar_copy);
  for (size_t i = 0; i < draws; i++) {
    made->draws[i] = part->draws[i];
    blocks[i] = part->draws[i].blocks;
  }
  graph->steps = step_copy;
  graph->scalars = scalar_copy;
  graph->blocks = blocks;
  graph->step_count = part->step_count;
  graph->slot_count = part->slot_count;
  graph->word_count = part->word_count;
  graph->scalar_count = part->scalar_count;
  graph->stream_count = part->draw_count;
  return TT_SUCCESS;
}

static tt_status make(tt_capture *part, tt_storage *const *results, int count, tt_nested **out) {
  TT_TRY(check_writes(part));
  tt_nested *made = room(part, 1, sizeof *made);
  if (!made) return tt_out_of_memory();
  TT_TRY(add_inputs(part, made));
  TT_TRY(add_results(part, made, results, count));
  TT_TRY(add_steps(part, made));
  *out = made;
  return TT_SUCCESS;
}

tt_status tt_nested_end(tt_stream *stream, tt_storage *const *results, int count, tt_nested **out) {
  *out = NULL;
  tt_device_lock(stream->device);
  tt_capture *part = stream->capture;
  bool is_part = part && part->outer;
  tt_status status = is_part ? make(part, results, count, out) : no_part();
  if (is_part) part = tt_capture_take(stream);
  tt_device_unlock(stream->device);
  if (is_part) tt_capture_destroy(part);
  return status;
}

void tt_nested_abandon(tt_stream *stream) {
  tt_device_lock(stream->device);
  tt_capture *part = stream->capture && stream->capture->outer ? tt_capture_take(stream) : NULL;
  tt_device_unlock(stream->device);
  if (part) tt_capture_destroy(part);
}

/* -- Recording -- */

/* A region that is being recorded. */
typedef struct recording {
  tt_arena *arena;
  const tt_nested_region *from;
  tt_region region;
  tt_storage **tensors; /* the operands, then the distinct storages from outside */
  tt_inner inner;
} recording;

static int body_count(const tt_nested_region *region) {
  return region->kind == TT_REGION_SCAN ? 1 : 2;
}

/* Which of the storages from outside it is. */
static int outer_number(recording *r, tt_storage *storage) {
  tt_storage **outers = r->tensors + r->from->operand_count;
  int i = 0;
  while (i < r->region.outer_count && outers[i] != storage) i++;
  if (i == r->region.outer_count) {
    r->region.outers[i] = storage->type;
    outers[r->region.outer_count++] = storage;
  }
  return i;
}

static tt_status add_tensors(recording *r) {
  const tt_nested_region *from = r->from;
  size_t count = (size_t)from->operand_count + 1, outers = 1;
  for (int b = 0; b < body_count(from); b++) outers += (size_t)from->bodies[b]->graph.outer_count;
  r->tensors = tt_arena_alloc(r->arena, (count + outers) * sizeof *r->tensors);
  r->region.operands = tt_arena_alloc(r->arena, count * sizeof *r->region.operands);
  r->region.outers = tt_arena_alloc(r->arena, outers * sizeof *r->region.outers);
  if (!r->tensors || !r->region.operands || !r->region.outers) return tt_out_of_memory();
  for (int i = 0; i < from->operand_count; i++) {
    r->tensors[i] = from->operands[i];
    r->region.operands[i] = from->operands[i]->type;
  }
  for (int b = 0; b < body_count(from); b++) {
    const tt_nested *body = from->bodies[b];
    int *numbers = tt_arena_alloc(r->arena, outers * sizeof *numbers);
    if (!numbers) return tt_out_of_memory();
    for (int i = 0; i < body->graph.outer_count; i++) numbers[i] = outer_number(r, body->outers[i]);
    r->region.outer_of[b] = numbers;
    r->region.bodies[b] = &body->graph;
  }
  return TT_SUCCESS;
}

/* Which of the region's generators it is; it gives the region no less than this. */
static int draw_number(tt_draw *draws, int *count, const tt_draw *draw, int64_t blocks) {
  int i = 0;
  while (i < *count && draws[i].generator != draw->generator) i++;
  if (i == *count) draws[(*count)++] = (tt_draw){.generator = draw->generator};
  if (draws[i].blocks < blocks) draws[i].blocks = blocks;
  return i;
}

static tt_status add_inner(recording *r) {
  size_t scalars = 1, streams = 1;
  int64_t times = tt_region_times(&r->region);
  int word_at = 0;
  for (int b = 0; b < body_count(r->from); b++) {
    scalars += (size_t)r->from->bodies[b]->graph.scalar_count;
    streams += (size_t)r->from->bodies[b]->graph.stream_count;
  }
  tt_scalar *inner = tt_arena_alloc(r->arena, scalars * sizeof *inner);
  tt_draw *draws = tt_arena_alloc(r->arena, streams * sizeof *draws);
  if (!inner || !draws) return tt_out_of_memory();
  for (int b = 0; b < body_count(r->from); b++) {
    const tt_nested *body = r->from->bodies[b];
    for (int i = 0; i < body->graph.scalar_count; i++) {
      tt_scalar scalar = body->graph.scalars[i];
      const tt_draw *draw = &body->draws[scalar.stream];
      int64_t blocks = 0;
      if (scalar.kind == TT_SCALAR_PHILOX && !tt_mul_i64(draw->blocks, times, &blocks))
        return tt_error(TT_OUT_OF_RANGE, "%s draws too many random numbers", r->from->name);
      if (scalar.kind == TT_SCALAR_PHILOX)
        scalar.stream = draw_number(draws, &r->inner.draw_count, draw, blocks);
      scalar.at += word_at;
      inner[r->inner.scalar_count++] = scalar;
    }
    word_at += body->graph.word_count;
  }
  r->inner.scalars = inner;
  r->inner.draws = draws;
  return TT_SUCCESS;
}

/* The lock is held. */
static tt_status prepare(recording *r, tt_call **call) {
  r->region.name = tt_arena_printf(r->arena, "%s", r->from->name);
  if (!r->region.name) return tt_out_of_memory();
  TT_TRY(add_tensors(r));
  TT_TRY(tt_region_call(r->arena, &r->region, call));
  return add_inner(r);
}

tt_status tt_nested_record(tt_stream *stream, const tt_nested_region *region,
                           const tt_policy *policy, uint32_t site, tt_storage **results) {
  recording r = {.from = region,
                 .region = {.kind = region->kind,
                            .operand_count = region->operand_count,
                            .carried = region->carried,
                            .length = region->length}};
  tt_call *call = NULL;
  for (int i = 0; i < region->operand_count; i++)
    TT_TRY(tt_capture_touch(stream, region->operands[i], policy));
  tt_device_lock(stream->device);
  if (stream->capture) r.arena = stream->capture->arena;
  tt_status status =
      r.arena ? prepare(&r, &call)
              : tt_error(TT_FAILED_PRECONDITION, "%s: this stream is not captured", region->name);
  tt_device_unlock(stream->device);
  if (status) return status;
  tt_operation operation = {
      .call = call, .tensors = r.tensors, .inner = &r.inner, .policy = policy, .site = site};
  return tt_stream_record(stream, &operation, results);
}
