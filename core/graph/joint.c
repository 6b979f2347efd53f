#include "graph/joint.h"

#include "ops/collective/collective.h"

#include <string.h>

/* Elements of a list's tensors. */
static int64_t count_elements(const tt_call *call, const tt_arg *list, tt_dtype *dtype) {
  int64_t total = 0;
  for (int i = 0; i < list->count; i++) {
    tt_type type = tt_view_type(&call->spec.tensors[list->first + i].view);
    total += tt_type_numel(&type);
    *dtype = type.dtype;
  }
  return total;
}

static void describe(const tt_call *call, tt_joint *out) {
  const tt_arg *args = call->spec.args;
  out->party = args[TT_COLLECTIVE_ARG_PARTY].i;
  out->kind = (tt_collective_kind)args[TT_COLLECTIVE_ARG_KIND].i;
  out->op = (tt_reduction)args[TT_COLLECTIVE_ARG_OP].i;
  out->x_count = count_elements(call, &args[TT_COLLECTIVE_ARG_INPUTS], &out->dtype);
  out->y_count = count_elements(call, &args[TT_COLLECTIVE_ARG_OUTPUTS], &out->dtype);
}

static tt_status copy_devices(const int64_t *devices, int count, tt_joint *out) {
  size_t size = (size_t)count * sizeof *devices;
  out->devices = tt_malloc(size);
  if (!out->devices) return tt_out_of_memory();
  memcpy(out->devices, devices, size);
  out->device_count = count;
  return TT_SUCCESS;
}

tt_status tt_joint_of(const tt_graph *graph, const tt_hlo *h, tt_joint *out) {
  int count = 0;
  const int64_t *devices = tt_hlo_devices(h, &count);
  *out = (tt_joint){.dtype = TT_U8};
  if (!devices) return TT_SUCCESS;
  TT_TRY(copy_devices(devices, count, out));
  for (int i = 0; i < graph->step_count; i++) {
    const tt_call *call = graph->steps[i].call;
    if (call->row->cls != TT_COLLECTIVE || !call->spec.args[TT_COLLECTIVE_ARG_DEVICES].count)
      continue;
    if (!out->collective_count++) describe(call, out);
    if (call->spec.args[TT_COLLECTIVE_ARG_PARTY].i != out->party)
      return tt_error(TT_INVALID_ARGUMENT,
                      "a program has collectives of party %lld and of another one; who launches it "
                      "must be known",
                      (long long)out->party);
  }
  return TT_SUCCESS;
}

void tt_joint_deinit(tt_joint *joint) {
  tt_free(joint->devices);
  *joint = (tt_joint){0};
}
