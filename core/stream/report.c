/* What an error says about the launch that failed. */
#include "run/run.h"
#include "run/stream_internal.h"

#include <string.h>

enum { LARGEST = 5 };

static void add_place(tt_text *text, const char *name, const char *join, uint32_t site) {
  const char *place = tt_site_text(site);
  tt_text_printf(text, "%s", name);
  if (*place) tt_text_printf(text, "%s%s", join, place);
}

void tt_origin_print(const tt_origin *origin, tt_text *text) {
  const tt_step *first = origin->end;
  if (!first) {
    add_place(text, origin->name, ", called at ", origin->site);
    return;
  }
  while (first->depth > 1) first = first->parent;
  tt_text_printf(text, "a chunk of %d operators, ", origin->end->depth);
  add_place(text, first->call->name, " at ", origin->first_site);
  tt_text_printf(text, " to ");
  add_place(text, origin->name, " at ", origin->site);
}

/* -- Memory -- */

static void add_bytes(tt_text *text, int64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double amount = (double)bytes / 1024;
  int unit = 0;
  if (bytes < 1024) {
    tt_text_printf(text, "%lld bytes", (long long)bytes);
    return;
  }
  for (; amount >= 1024 && unit < 3; unit++) amount /= 1024;
  tt_text_printf(text, "%.1f %s", amount, units[unit]);
}

static int64_t sum_bytes(tt_value *const *values, int count) {
  int64_t sum = 0, bytes = 0;
  for (int i = 0; i < count; i++)
    if (values[i] && tt_type_bytes(values[i]->type, &bytes)) sum += bytes;
  return sum;
}

void tt_launch_print_needs(const tt_origin *origin, const tt_launch *launch, tt_text *text) {
  tt_program_memory needs = {.temporaries = -1};
  if (!origin->program || !tt_program_needs(origin->program, &needs)) {
    if (!launch) return;
    needs.arguments = sum_bytes(launch->inputs, launch->input_count);
    needs.outputs = sum_bytes(launch->outputs, launch->output_count);
  }
  tt_text_printf(text, "needs ");
  add_bytes(text, needs.arguments);
  tt_text_printf(text, " of inputs, ");
  add_bytes(text, needs.outputs);
  tt_text_printf(text, " of results");
  if (needs.aliased > 0) tt_text_printf(text, " (");
  if (needs.aliased > 0) add_bytes(text, needs.aliased);
  if (needs.aliased > 0) tt_text_printf(text, " in place of inputs)");
  if (needs.temporaries < 0) return;
  tt_text_printf(text, ", ");
  add_bytes(text, needs.temporaries);
  tt_text_printf(text, " of temporaries");
}

static void add_holding(tt_text *text, const tt_holding *holding) {
  const char *place = tt_site_text(holding->site);
  tt_text_printf(text, "\n  ");
  add_bytes(text, holding->bytes);
  tt_text_printf(text, ", %s[", tt_dtype_name(holding->type->dtype));
  for (int i = 0; i < holding->type->rank; i++)
    tt_text_printf(text, "%s%lld", i ? "," : "", (long long)holding->type->dims[i]);
  tt_text_printf(text, "]");
  if (*place) tt_text_printf(text, ", made at %s", place);
}

static void add_holdings(tt_text *text, tt_stream *stream) {
  tt_memory memory;
  tt_holding largest[LARGEST];
  tt_stream_memory(stream, &memory);
  int count = tt_stream_largest(stream, largest, LARGEST);
  tt_text_printf(text, "Device tpu:%d holds ", tt_stream_device_index(stream));
  add_bytes(text, memory.allocated);
  tt_text_printf(text, " in tensors");
  if (memory.limit > 0) {
    tt_text_printf(text, ", of ");
    add_bytes(text, memory.limit);
  }
  if (count) tt_text_printf(text, "; the largest:");
  for (int i = 0; i < count; i++) add_holding(text, &largest[i]);
}

/* What the host lacks, the device's tensors do not hold. */
static bool device_is_full(tt_status status) {
  return tt_status_code(status) == TT_RESOURCE_EXHAUSTED &&
         !strstr(tt_status_message(status), tt_status_message(tt_out_of_memory()));
}

tt_status tt_report_memory(tt_status status, tt_stream *stream) {
  tt_text text = TT_TEXT_INIT;
  if (!device_is_full(status)) return status;
  add_holdings(&text, stream);
  if (text.size) status = tt_status_extend(status, "\n%s", text.data);
  tt_text_deinit(&text);
  return status;
}

tt_status tt_launch_error(tt_status status, tt_stream *stream, const tt_origin *origin,
                          const tt_launch *launch) {
  tt_text text = TT_TEXT_INIT, place = TT_TEXT_INIT;
  if (!status) return TT_SUCCESS;
  if (device_is_full(status)) {
    tt_launch_print_needs(origin, launch, &text);
    if (text.size) status = tt_status_extend(status, "\nThe program %s", text.data);
    tt_text_deinit(&text);
    status = tt_report_memory(status, stream);
  }
  tt_origin_print(origin, &place);
  if (place.size) status = tt_status_prefix(status, "%s", place.data);
  tt_text_deinit(&place);
  return status;
}
