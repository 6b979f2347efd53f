#include "stream/report.h"

static void add_place(tt_text *text, const char *name, const char *join, uint32_t site) {
  const char *place = tt_site_text(site);
  tt_text_printf(text, "%s", name);
  if (*place) tt_text_printf(text, "%s%s", join, place);
}

void tt_report_origin(const tt_origin *origin, tt_text *text) {
  const tt_graph *graph = origin->graph;
  if (!graph) {
    add_place(text, origin->name, ", called at ", origin->site);
    if (origin->captured_steps) tt_text_printf(text, " (%d operators)", origin->captured_steps);
    return;
  }
  tt_text_printf(text, "a chunk of %d operators, ", graph->step_count);
  add_place(text, graph->steps[0].call->name, " at ", origin->first_site);
  tt_text_printf(text, " to ");
  add_place(text, origin->name, " at ", origin->site);
}

/* -- Memory -- */

static int64_t sum_bytes(tt_value *const *values, int count) {
  int64_t sum = 0, bytes = 0;
  for (int i = 0; i < count; i++)
    if (values[i] && tt_type_bytes(values[i]->holding.type, &bytes)) sum += bytes;
  return sum;
}

void tt_report_needs(const tt_launch *launch, bool values, tt_text *text) {
  const tt_origin *origin = &launch->origin;
  tt_program_memory needs = {.temporaries = -1};
  if (!origin->program || !tt_program_needs(origin->program, &needs)) {
    if (!values) return;
    needs.arguments = sum_bytes(launch->inputs, launch->input_count);
    needs.outputs = sum_bytes(launch->outputs, launch->output_count);
  }
  tt_text_printf(text, "needs ");
  tt_text_bytes(text, needs.arguments);
  tt_text_printf(text, " of inputs, ");
  tt_text_bytes(text, needs.outputs);
  tt_text_printf(text, " of results");
  if (needs.aliased > 0) tt_text_printf(text, " (");
  if (needs.aliased > 0) tt_text_bytes(text, needs.aliased);
  if (needs.aliased > 0) tt_text_printf(text, " in place of inputs)");
  if (needs.temporaries < 0) return;
  tt_text_printf(text, ", ");
  tt_text_bytes(text, needs.temporaries);
  tt_text_printf(text, " of temporaries");
}

tt_status tt_report(tt_status status, const tt_launch *launch, bool values) {
  tt_text text = TT_TEXT_INIT, place = TT_TEXT_INIT;
  if (!status) return TT_SUCCESS;
  if (tt_device_is_full(status)) {
    tt_report_needs(launch, values, &text);
    if (text.size) status = tt_status_extend(status, "\nThe program %s", text.data);
    tt_text_deinit(&text);
    status = tt_device_report_memory(launch->device, status);
  }
  tt_report_origin(&launch->origin, &place);
  if (place.size) status = tt_status_prefix(status, "%s", place.data);
  tt_text_deinit(&place);
  return status;
}
