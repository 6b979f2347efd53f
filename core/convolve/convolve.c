#include "convolve/convolve.h"

#include <stdatomic.h>
#include <stdio.h>

static _Atomic(const tt_convolver *) bound;

void tt_convolve_bind(const tt_convolver *convolver) {
  atomic_store_explicit(&bound, convolver, memory_order_release);
}

bool tt_convolve_bound(void) { return atomic_load_explicit(&bound, memory_order_acquire) != NULL; }

static void read_list(const tt_ffi_call *call, const char *name, int count, int64_t *out) {
  char numbered[32];
  for (int d = 0; d < count; d++) {
    snprintf(numbered, sizeof numbered, "%s%d", name, d);
    out[d] = tt_ffi_int(call, numbered);
  }
}

/* `w` is the operand that has the kernel's dims. */
static tt_status read_config(const tt_ffi_call *call, int w, int operands, tt_convolution *out) {
  *out = (tt_convolution){0};
  bool enough = call->operand_count >= operands && call->result_count > 0;
  int spatial = enough ? call->operands[w].type.rank - 2 : 0;
  if (spatial < 1 || spatial > TT_CONVOLVED_DIMS)
    return tt_error(TT_INVALID_ARGUMENT,
                    "a convolution takes %d arrays at least, of 1 to %d dims in space", operands,
                    TT_CONVOLVED_DIMS);
  out->spatial = spatial;
  read_list(call, "stride", spatial, out->stride);
  read_list(call, "padding", spatial, out->padding);
  read_list(call, "dilation", spatial, out->dilation);
  read_list(call, "output_padding", spatial, out->output_padding);
  out->groups = tt_ffi_int(call, "groups");
  out->transposed = tt_ffi_int(call, "transposed");
  out->last = tt_ffi_int(call, "last");
  out->input = tt_ffi_int(call, "input");
  out->weight = tt_ffi_int(call, "weight");
  out->bias = tt_ffi_int(call, "bias");
  return TT_SUCCESS;
}

static tt_status forward(const tt_ffi_call *call) {
  tt_convolution of;
  TT_TRY(read_config(call, 1, 2, &of));
  const tt_ffi_array *in = call->operands;
  return atomic_load(&bound)->forward(&of, &in[0], &in[1], call->operand_count > 2 ? &in[2] : NULL,
                                      &call->results[0]);
}

static tt_status backward(const tt_ffi_call *call) {
  tt_convolution of;
  TT_TRY(read_config(call, 2, 3, &of));
  const bool asked[] = {of.input, of.weight, of.bias};
  const tt_ffi_array *in = call->operands, *out[3] = {NULL};
  int given = 0;
  for (int i = 0; i < 3; i++)
    if (asked[i] && given < call->result_count) out[i] = &call->results[given++];
  return atomic_load(&bound)->backward(&of, &in[0], &in[1], &in[2], out[0], out[1], out[2]);
}

static tt_ffi_error *handle_forward(tt_ffi_frame *frame) { return tt_ffi_run(frame, forward); }
static tt_ffi_error *handle_backward(tt_ffi_frame *frame) { return tt_ffi_run(frame, backward); }

tt_status tt_convolve_offer(tt_plugin *plugin) {
  TT_TRY(tt_plugin_register(plugin, "torch_tpu.convolution", "Host", handle_forward));
  return tt_plugin_register(plugin, "torch_tpu.convolution_backward", "Host", handle_backward);
}
