#include "stream/obey.h"

#include "kernels/kernels.h"

enum { LOCAL = 16 };

typedef struct places {
  tt_buffer **made; /* [output_count] */
  void **inputs, **outputs;
  tt_buffer *local_made[LOCAL];
  void *local[2 * LOCAL];
} places;

static tt_status places_init(places *p, const tt_launch *launch) {
  size_t inputs = (size_t)launch->input_count, outputs = (size_t)launch->output_count;
  bool few = inputs <= LOCAL && outputs <= LOCAL;
  p->made = few ? p->local_made : tt_malloc(sizeof *p->made * (outputs + 1));
  p->inputs = few ? p->local : tt_malloc(sizeof *p->inputs * (inputs + outputs + 1));
  p->outputs = p->inputs + inputs;
  for (size_t i = 0; p->made && i < outputs; i++) p->made[i] = NULL;
  return p->made && p->inputs ? TT_SUCCESS : tt_out_of_memory();
}

static void places_deinit(places *p) {
  if (p->made != p->local_made) tt_free(p->made);
  if (p->inputs != p->local) tt_free(p->inputs);
}

static tt_status find_inputs(const tt_launch *launch, places *p) {
  tt_client *client = launch->device->client;
  for (int i = 0; i < launch->input_count; i++) {
    TT_TRY(tt_buffer_await(client, launch->inputs[i]->buffer));
    TT_TRY(tt_buffer_pointer(client, launch->inputs[i]->buffer, &p->inputs[i]));
  }
  return TT_SUCCESS;
}

static void destroy_outputs(const tt_launch *launch, places *p) {
  for (int i = 0; i < launch->output_count; i++) {
    tt_buffer_destroy(launch->device->client, p->made[i]);
    p->made[i] = NULL;
  }
}

static tt_status try_outputs(const tt_launch *launch, places *p) {
  const tt_device *device = launch->device;
  for (int i = 0; i < launch->output_count; i++) {
    TT_TRY(tt_buffer_create(device->raw, launch->outputs[i]->holding.type, &p->made[i]));
    TT_TRY(tt_buffer_pointer(device->client, p->made[i], &p->outputs[i]));
  }
  return TT_SUCCESS;
}

static tt_status make_outputs(const tt_launch *launch, places *p) {
  tt_status status = try_outputs(launch, p);
  if (!tt_launch_retries(launch, status)) return status;
  tt_status_release(status);
  destroy_outputs(launch, p);
  return try_outputs(launch, p);
}

static tt_status obey(const tt_launch *launch, places *p) {
  TT_TRY(find_inputs(launch, p));
  TT_TRY(make_outputs(launch, p));
  TT_TRY(tt_kernels_obey(launch->orders, p->inputs, p->outputs, launch->words));
  tt_count_add(TT_COUNT_LAUNCHES, 1);
  for (int i = 0; i < launch->output_count; i++) tt_value_fulfil(launch->outputs[i], p->made[i]);
  return TT_SUCCESS;
}

tt_status tt_launch_obey(tt_launch *launch) {
  places p;
  tt_status status = places_init(&p, launch);
  if (!status) status = obey(launch, &p);
  if (status && p.made) destroy_outputs(launch, &p);
  places_deinit(&p);
  return status;
}
