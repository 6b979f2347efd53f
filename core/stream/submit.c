#include "stream/submit.h"

#include "stream/obey.h"
#include "stream/replay.h"
#include "stream/report.h"

#include <assert.h>

static tt_launch *launch_of(tt_job *job) { return (tt_launch *)job; }

static void fail_outputs(tt_launch *launch, tt_status status) {
  for (int i = 0; i < launch->output_count; i++)
    if (tt_value_get_state(launch->outputs[i]) == TT_VALUE_PENDING)
      tt_value_fail(launch->outputs[i], tt_status_clone(status));
}

/* What is under way need not keep its values. */
static void drop_values(tt_launch *launch) {
  for (int i = 0; i < launch->input_count; i++) tt_value_release(launch->inputs[i]);
  for (int i = 0; i < launch->output_count; i++) tt_value_release(launch->outputs[i]);
  launch->input_count = launch->output_count = 0;
}

static void note_wait(const tt_launch *launch) {
  static const int64_t short_ns = 1000000;
  tt_text text = TT_TEXT_INIT;
  if (launch->waited_ns < short_ns) return;
  tt_text_printf(&text, "%.0f ms for the program of ", (double)launch->waited_ns / 1e6);
  tt_report_origin(&launch->origin, &text);
  tt_journal_keep("waited", &text);
}

static void log_launch(const tt_launch *launch, int64_t start) {
  tt_text name = TT_TEXT_INIT;
  tt_report_origin(&launch->origin, &name);
  tt_log(TT_LOG_LAUNCH, "%s%s: %d inputs, %d results, %.3f ms", launch->orders ? "orders of " : "",
         name.data ? name.data : launch->origin.name, launch->input_count, launch->output_count,
         (double)(tt_now_ns() - start - launch->waited_ns) / 1e6);
  tt_text_deinit(&name);
}

static tt_status start(tt_launch *launch, tt_event **end) {
  if (launch->refused) return tt_status_clone(launch->refused);
  int64_t begin = tt_log_on(TT_LOG_LAUNCH) ? tt_now_ns() : 0;
  tt_status status = launch->orders ? tt_launch_obey(launch) : tt_launch_execute(launch, end);
  if (begin) log_launch(launch, begin);
  return status;
}

static tt_status execute(tt_launch *launch, tt_event **end) {
  tt_status status = tt_launch_check_inputs(launch);
  bool told = status != TT_SUCCESS;
  if (!status) status = start(launch, end);
  note_wait(launch);
  if (status && launch->origin.graph && tt_replay(launch, &status)) return status;
  if (!status) return TT_SUCCESS;
  if (!told) status = tt_report(status, launch, true);
  fail_outputs(launch, status);
  if (!told || launch->job.outcome) return status;
  tt_status_release(status);
  return TT_SUCCESS;
}

static tt_status run(tt_job *job, tt_event **end) {
  tt_launch *launch = launch_of(job);
  tt_status status = execute(launch, end);
  bool goes_on = end && *end && !status && !launch->wait;
  if (end && *end && !goes_on) {
    tt_event_destroy(launch->device->client, *end);
    *end = NULL;
  }
  if (goes_on) drop_values(launch);
  return status;
}

static tt_status explain(tt_job *job, tt_status status) {
  const tt_launch *launch = launch_of(job);
  if (launch->origin.graph)
    status = tt_status_extend(status, "; its inputs were given away before it failed, so it cannot "
                                      "be run again operator by operator");
  return tt_report(status, launch, false);
}

static void destroy(tt_job *job) { tt_launch_destroy(launch_of(job)); }

void tt_submit(tt_queue *queue, tt_launch *launch) {
  static const tt_job_class class = {run, explain, destroy};
  launch->job.is = &class;
  uint64_t ticket = tt_queue_last(queue) + 1;
  for (int i = 0; i < launch->output_count; i++) {
    assert(!launch->outputs[i]->queue);
    launch->outputs[i]->queue = queue;
    launch->outputs[i]->ticket = ticket;
  }
  uint64_t got = tt_queue_push(queue, &launch->job);
  assert(got == ticket);
  (void)got;
}
