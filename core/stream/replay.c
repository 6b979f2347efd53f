#include "run/replay.h"

#include "run/run.h"
#include "run/stream_internal.h"

#include <string.h>

typedef struct replay {
  tt_launch *chunk;
  tt_stream *stream;
  const tt_step **path;  /* [depth] */
  tt_program **programs; /* [depth] NULL: not run, for nobody needs it or an operand has failed */
  tt_value **slots;      /* [slot_count] one reference each, while somebody needs them */
  int *last_use;         /* [slot_count] the operator that reads it last, or -1 */
  bool *made;            /* [slot_count] a result, not an input */
  bool *failed;          /* [slot_count] depends on an input that failed */
} replay;

/* -- What is to be done -- */

static tt_status allocate(replay *r, tt_arena *arena) {
  size_t depth = (size_t)r->chunk->origin.end->depth;
  size_t slots = (size_t)r->chunk->origin.end->slot_count;
  r->path = tt_arena_alloc(arena, depth * sizeof *r->path);
  r->programs = tt_arena_alloc(arena, depth * sizeof *r->programs);
  r->slots = tt_arena_alloc(arena, slots * sizeof *r->slots);
  r->last_use = tt_arena_alloc(arena, slots * sizeof *r->last_use);
  r->made = tt_arena_alloc(arena, slots * sizeof *r->made);
  r->failed = tt_arena_alloc(arena, slots * sizeof *r->failed);
  bool all = r->path && r->programs && r->slots && r->last_use && r->made && r->failed;
  return all ? TT_SUCCESS : tt_out_of_memory();
}

static bool is_needed(const replay *r, const tt_step *step) {
  for (int k = 0; k < step->call->output_count; k++)
    if (r->chunk->live[step->first_output + k] || r->last_use[step->first_output + k] >= 0)
      return true;
  return false;
}

/* From the last operator to the first: who needs what. */
static void plan(replay *r) {
  const tt_step *end = r->chunk->origin.end;
  for (int slot = 0; slot < end->slot_count; slot++) r->last_use[slot] = -1;
  for (const tt_step *step = end; step->call; step = step->parent) {
    r->path[step->depth - 1] = step;
    for (int k = 0; k < step->call->output_count; k++) r->made[step->first_output + k] = true;
    if (!is_needed(r, step)) continue;
    for (int i = 0; i < step->call->input_count; i++) {
      int *last = &r->last_use[step->inputs[i]];
      if (*last < 0) *last = step->depth - 1;
    }
  }
  for (int slot = 0, next = 0; slot < end->slot_count; slot++)
    if (!r->made[slot])
      r->failed[slot] = tt_value_get_state(r->chunk->inputs[next++]) == TT_VALUE_FAILED;
}

/* Asks for the programs of all operators, so that they are compiled side by side. *count: how many
 * can be run at all. */
static tt_status ask(replay *r, int *count) {
  for (int i = 0; i < r->chunk->origin.end->depth; i++) {
    const tt_step *step = r->path[i];
    bool failed = false;
    for (int k = 0; k < step->call->input_count; k++) failed |= r->failed[step->inputs[k]];
    for (int k = 0; k < step->call->output_count; k++) r->failed[step->first_output + k] = failed;
    if (failed || !is_needed(r, step)) continue;
    TT_TRY(tt_call_program(step->call, &r->programs[i]));
    ++*count;
  }
  return TT_SUCCESS;
}

/* The values of results that do not outlive the chunk. */
static tt_status make_values(replay *r) {
  for (int i = 0; i < r->chunk->origin.end->depth; i++) {
    const tt_step *step = r->path[i];
    int slot = step->first_output;
    if (!is_needed(r, step)) continue;
    for (int k = 0; k < step->call->result_count; k++) {
      const tt_call_result *result = &step->call->results[k];
      if (!result->defined) continue;
      if (!r->chunk->live[slot])
        TT_TRY(tt_value_create(r->stream, result->storage, r->chunk->sites[i], &r->slots[slot]));
      slot++;
    }
  }
  return TT_SUCCESS;
}

/* -- Doing it -- */

/* Inputs move from the chunk's launch, so that operators that write to them may have them. */
static void take_values(replay *r) {
  int input = 0, output = 0;
  for (int slot = 0; slot < r->chunk->origin.end->slot_count; slot++) {
    if (!r->made[slot]) {
      r->slots[slot] = r->chunk->inputs[input];
      r->chunk->inputs[input++] = NULL;
    } else if (r->chunk->live[slot]) {
      r->slots[slot] = tt_value_retain(r->chunk->outputs[output++]);
    }
  }
}

static void drop(replay *r, int slot) {
  tt_value_release(r->slots[slot]);
  r->slots[slot] = NULL;
}

static tt_status launch_step(replay *r, int at, tt_launch *launch) {
  const tt_step *step = r->path[at];
  tt_event *done = NULL;
  launch->origin = (tt_origin){
      .program = r->programs[at], .name = step->call->name, .site = r->chunk->sites[at]};
  launch->wait = true;
  for (int i = 0; i < launch->input_count; i++)
    launch->inputs[i] = tt_value_retain(r->slots[step->inputs[i]]);
  for (int i = 0; i < launch->input_count; i++)
    if (r->last_use[step->inputs[i]] == at) drop(r, step->inputs[i]);
  for (int k = 0; k < launch->output_count; k++)
    launch->outputs[k] = tt_value_retain(r->slots[step->first_output + k]);
  if (launch->word_count)
    memcpy(launch->words, r->chunk->words + step->word_at,
           sizeof *launch->words * (size_t)launch->word_count);
  tt_status status = tt_launch_run(launch, r->stream, &done);
  tt_event_destroy(tt_runtime_client(), done);
  return status;
}

static tt_status run_step(replay *r, int at) {
  const tt_step *step = r->path[at];
  const tt_call *call = step->call;
  tt_launch *launch =
      tt_launch_create(call->input_count, call->output_count, call->word_count, NULL);
  tt_status status = launch ? launch_step(r, at, launch) : tt_out_of_memory();
  tt_launch_destroy(launch);
  for (int k = 0; k < call->output_count; k++) {
    int slot = step->first_output + k;
    if (status && tt_value_get_state(r->slots[slot]) == TT_VALUE_PENDING)
      tt_value_fail(r->slots[slot], tt_status_clone(status));
    if (r->last_use[slot] < 0) drop(r, slot);
  }
  return status;
}

/* Success, or the first operator's error. */
static tt_status run_steps(replay *r) {
  tt_status first = TT_SUCCESS;
  for (int i = 0; i < r->chunk->origin.end->depth; i++) {
    tt_status status = is_needed(r, r->path[i]) ? run_step(r, i) : TT_SUCCESS;
    if (first) tt_status_release(status);
    else first = status;
  }
  return first;
}

/* -- What is said -- */

static void log_result(const replay *r, const char *why, tt_status status) {
  tt_text name = TT_TEXT_INIT;
  if (!tt_log_on(TT_LOG_LAUNCH)) return;
  tt_origin_print(&r->chunk->origin, &name);
  tt_log(TT_LOG_LAUNCH, "%s failed: %s; run operator by operator: %s",
         name.data ? name.data : "a chunk", why, status ? tt_status_message(status) : "no error");
  tt_text_deinit(&name);
}

/* Behind an operator's error: how the chunk had failed, unless it was in the same way. `needs` may
 * be empty. */
static tt_status explain(const replay *r, tt_status status, tt_status why, const tt_text *needs) {
  tt_text name = TT_TEXT_INIT;
  if (!status) return TT_SUCCESS;
  tt_origin_print(&r->chunk->origin, &name);
  bool alike = strstr(tt_status_message(status), tt_status_message(why)) != NULL;
  status = tt_status_extend(status, "\nIt was run alone, because %s had failed%s%s%s%s",
                     name.data ? name.data : "a chunk", alike ? "" : ": ",
                     alike ? "" : tt_status_message(why), needs->size ? "; it " : "",
                     needs->size ? needs->data : "");
  tt_text_deinit(&name);
  return status;
}

/* -- All of it -- */

/* What goes wrong with one operator as it does with many. */
static bool is_hopeless(tt_status why) {
  return tt_status_code(why) == TT_CANCELLED || tt_status_code(why) == TT_UNAVAILABLE;
}

static tt_status check_inputs(const tt_launch *chunk) {
  for (int i = 0; i < chunk->input_count; i++)
    if (tt_value_get_state(chunk->inputs[i]) == TT_VALUE_READY &&
        tt_buffer_deleted(tt_runtime_client(), chunk->inputs[i]->buffer))
      return tt_error(TT_FAILED_PRECONDITION, "its inputs were given away before it failed");
  return TT_SUCCESS;
}

static tt_status prepare(replay *r, int *count) {
  plan(r);
  TT_TRY(check_inputs(r->chunk));
  TT_TRY(ask(r, count));
  return *count ? make_values(r) : TT_SUCCESS;
}

static void run(replay *r, bool input_failed, tt_status *status) {
  tt_text needs = TT_TEXT_INIT;
  tt_status why = *status;
  if (!input_failed && tt_status_code(why) == TT_RESOURCE_EXHAUSTED)
    tt_launch_print_needs(&r->chunk->origin, r->chunk, &needs); /* now, while it has its inputs */
  take_values(r);
  *status = run_steps(r);
  tt_count_add(TT_COUNT_REPLAYS, 1);
  log_result(r, tt_status_message(why), *status);
  if (!input_failed) *status = explain(r, *status, why, &needs);
  tt_text_deinit(&needs);
  tt_status_release(why);
}

bool tt_replay(tt_launch *launch, tt_stream *stream, tt_status *status) {
  replay r = {.chunk = launch, .stream = stream};
  tt_arena arena = {0};
  bool input_failed = false;
  int count = 0;
  if (is_hopeless(*status) || allocate(&r, &arena)) {
    tt_arena_deinit(&arena);
    return false;
  }
  for (int i = 0; i < launch->input_count; i++)
    input_failed |= tt_value_get_state(launch->inputs[i]) == TT_VALUE_FAILED;
  tt_status obstacle = prepare(&r, &count);
  if (!obstacle && count) run(&r, input_failed, status);
  else if (obstacle && !input_failed)
    *status = tt_status_extend(*status, "; it could not be run again operator by operator: %s",
                        tt_status_message(obstacle));
  for (int slot = 0; slot < launch->origin.end->slot_count; slot++) drop(&r, slot);
  bool done = !obstacle && count;
  tt_status_release(obstacle);
  tt_arena_deinit(&arena);
  return done;
}
