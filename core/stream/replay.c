#include "stream/replay.h"

#include "call/ordered.h"
#include "stream/obey.h"
#include "stream/report.h"

#include <assert.h>
#include <string.h>

typedef struct replay {
  tt_launch *chunk;
  const tt_graph *graph;
  bool *runs;            /* [step_count] somebody needs it, and no operand failed */
  tt_program **programs; /* [step_count] of those that run, or NULL: that is ordered */
  tt_value **slots;      /* [slot_count] one reference each, while somebody needs them */
  int *last_use;         /* [slot_count] the step that reads it last, or -1 */
  bool *needed;          /* [step_count] */
  bool *failed;          /* [slot_count] depends on an input that failed */
} replay;

/* -- What is to be done -- */

static tt_status allocate(replay *r, tt_arena *arena) {
  size_t steps = (size_t)r->graph->step_count, slots = (size_t)r->graph->slot_count;
  r->runs = tt_arena_alloc(arena, steps * sizeof *r->runs);
  r->programs = tt_arena_alloc(arena, steps * sizeof *r->programs);
  r->needed = tt_arena_alloc(arena, steps * sizeof *r->needed);
  r->slots = tt_arena_alloc(arena, slots * sizeof *r->slots);
  r->last_use = tt_arena_alloc(arena, slots * sizeof *r->last_use);
  r->failed = tt_arena_alloc(arena, slots * sizeof *r->failed);
  bool all = r->runs && r->programs && r->needed && r->slots && r->last_use && r->failed;
  return all ? TT_SUCCESS : tt_out_of_memory();
}

/* A chunk of orders has one that failed; the others need no compiler. */
static bool is_ordered(const replay *r, int at) {
  const tt_target *target = tt_program_table_target(r->chunk->device->programs);
  return r->chunk->orders && tt_call_orders(r->graph->steps[at].call, target);
}

/* Asks for the programs of all operators, so that they are compiled side by side. *count: how many
 * can be run at all. */
static tt_status ask(replay *r, int *count) {
  const tt_graph *graph = r->graph;
  for (int i = 0; i < graph->input_count; i++)
    r->failed[graph->inputs[i]] = tt_value_get_state(r->chunk->inputs[i]) == TT_VALUE_FAILED;
  for (int i = 0; i < graph->step_count; i++) {
    const tt_step *step = &graph->steps[i];
    bool failed = false, hurt = false; /* what is only written over may have failed */
    for (int k = 0; k < step->call->input_count; k++) {
      hurt |= r->failed[step->inputs[k]];
      failed |= r->failed[step->inputs[k]] && step->call->reads[k];
    }
    for (int k = 0; k < step->call->output_count; k++) r->failed[step->first_output + k] = failed;
    if (failed || !r->needed[i]) continue;
    r->runs[i] = true;
    ++*count;
    if (!hurt && is_ordered(r, i)) continue;
    TT_TRY(tt_program_of_call(r->chunk->device->programs, step->call, r->chunk->want,
                              &r->programs[i]));
  }
  return TT_SUCCESS;
}

/* The values of results that do not outlive the chunk; those of outputs are the launch's. */
static tt_status make_values(replay *r) {
  for (int i = 0; i < r->graph->output_count; i++)
    r->slots[r->graph->outputs[i].slot] = tt_value_retain(r->chunk->outputs[i]);
  for (int i = 0; i < r->graph->step_count; i++) {
    const tt_step *step = &r->graph->steps[i];
    for (int k = 0; r->needed[i] && k < step->call->output_count; k++) {
      tt_value **slot = &r->slots[step->first_output + k];
      if (*slot) continue;
      TT_TRY(tt_value_create(&r->chunk->device->account, NULL, tt_step_result_type(step, k),
                             r->chunk->sites[i], slot));
    }
  }
  return TT_SUCCESS;
}

/* -- Doing it -- */

/* Inputs move from the chunk's launch, so that operators that write to them may have them. */
static void take_inputs(replay *r) {
  for (int i = 0; i < r->graph->input_count; i++) {
    r->slots[r->graph->inputs[i]] = r->chunk->inputs[i];
    r->chunk->inputs[i] = NULL;
  }
}

static void drop(replay *r, int slot) {
  tt_value_release(r->slots[slot]);
  r->slots[slot] = NULL;
}

static tt_status execute(tt_launch *launch) {
  tt_event *end = NULL;
  tt_status status = tt_launch_execute(launch, &end);
  tt_event_destroy(launch->device->client, end);
  return status;
}

static tt_status try_order(tt_launch *launch, tt_call *call) {
  tt_arena arena = TT_ARENA_INIT;
  tt_graph *graph = NULL;
  tt_orders orders;
  tt_status status = tt_graph_of_call(&arena, call, &graph);
  if (!status) status = tt_graph_order(graph, &arena, &orders);
  launch->orders = &orders;
  if (!status) status = tt_launch_obey(launch);
  launch->orders = NULL;
  tt_arena_deinit(&arena);
  return status;
}

/* What fails, too, has a program after all. */
static tt_status obey_or_execute(const replay *r, tt_launch *launch, tt_call *call) {
  tt_status status = try_order(launch, call);
  if (!status) return TT_SUCCESS;
  tt_status_release(status);
  tt_call_refuse_orders(call);
  TT_TRY(tt_program_of_call(r->chunk->device->programs, call, r->chunk->want,
                            &launch->origin.program));
  return execute(launch);
}

static tt_status launch_step(replay *r, int at, tt_launch *launch) {
  const tt_step *step = &r->graph->steps[at];
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
  tt_status error = tt_launch_check_inputs(launch);
  if (error) return error;
  tt_status status = r->programs[at] ? execute(launch) : obey_or_execute(r, launch, step->call);
  return tt_report(status, launch, true);
}

/* *told: the error is an operand's, and was told before. */
static tt_status run_step(replay *r, int at, bool *told) {
  const tt_step *step = &r->graph->steps[at];
  const tt_call *call = step->call;
  *told = !r->runs[at];
  tt_launch *launch = tt_launch_create(r->chunk->device, call->input_count, call->output_count,
                                       call->word_count, 0);
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
  for (int i = 0; i < r->graph->step_count; i++) {
    bool told = false;
    tt_status status = r->needed[i] ? run_step(r, i, &told) : TT_SUCCESS;
    if (first || told) tt_status_release(status);
    else first = status;
  }
  return first;
}

/* -- What is said -- */

static void log_result(const replay *r, const char *why, tt_status status) {
  tt_text name = TT_TEXT_INIT;
  if (!tt_log_on(TT_LOG_LAUNCH)) return;
  tt_report_origin(&r->chunk->origin, &name);
  tt_log(TT_LOG_LAUNCH, "%s failed: %s; run operator by operator: %s",
         name.data ? name.data : "a chunk", why, status ? tt_status_message(status) : "no error");
  tt_text_deinit(&name);
}

/* Behind an operator's error: how the chunk had failed, unless the same was said of both. `needs`
 * may be empty. */
static tt_status explain(const replay *r, tt_status status, tt_status why, const tt_text *needs) {
  tt_text name = TT_TEXT_INIT;
  if (!status) return TT_SUCCESS;
  tt_report_origin(&r->chunk->origin, &name);
  bool alike = tt_status_alike(status, why);
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

static tt_status prepare(replay *r, int *count) {
  tt_graph_uses(r->graph, r->last_use, r->needed);
  if (tt_launch_lost_inputs(r->chunk))
    return tt_error(TT_FAILED_PRECONDITION, "its inputs were given away before it failed");
  TT_TRY(ask(r, count));
  return *count ? make_values(r) : TT_SUCCESS;
}

/* A kernel does not compute what the row would. */
static void refuse_order(const replay *r, int step) {
  if (step >= 0 && step < r->graph->step_count) tt_call_refuse_orders(r->graph->steps[step].call);
}

static void run(replay *r, bool input_failed, tt_status *status) {
  tt_text needs = TT_TEXT_INIT;
  tt_status why = *status;
  bool memory = tt_status_code(why) == TT_RESOURCE_EXHAUSTED;
  if (!input_failed && memory)
    tt_report_needs(r->chunk, true, &needs); /* now, while it has its inputs */
  take_inputs(r);
  *status = run_steps(r);
  tt_count_add(TT_COUNT_REPLAYS, 1);
  log_result(r, tt_status_message(why), *status);
  if (!input_failed) *status = explain(r, *status, why, &needs);
  tt_text_deinit(&needs);
  tt_status_release(why);
}

bool tt_replay(tt_launch *launch, tt_status *status) {
  assert(launch->origin.graph && *status);
  replay r = {.chunk = launch, .graph = launch->origin.graph};
  tt_arena arena = TT_ARENA_INIT;
  bool input_failed = false;
  int count = 0;
  if (is_hopeless(*status) || allocate(&r, &arena)) {
    tt_arena_deinit(&arena);
    return false;
  }
  for (int i = 0; i < launch->input_count; i++)
    input_failed |= tt_value_get_state(launch->inputs[i]) == TT_VALUE_FAILED;
  if (launch->orders && !input_failed && tt_status_code(*status) != TT_RESOURCE_EXHAUSTED)
    refuse_order(&r, tt_order_blamed(tt_status_message(*status)));
  tt_status obstacle = prepare(&r, &count);
  if (!obstacle && count) run(&r, input_failed, status);
  else if (obstacle && !input_failed)
    *status = tt_status_extend(*status, "; it could not be run again operator by operator: %s",
                               tt_status_message(obstacle));
  for (int slot = 0; slot < r.graph->slot_count; slot++) drop(&r, slot);
  bool done = !obstacle && count;
  tt_status_release(obstacle);
  tt_arena_deinit(&arena);
  return done;
}
