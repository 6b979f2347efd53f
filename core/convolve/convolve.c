#include "convolve/convolve.h"

#include <stdatomic.h>

static _Atomic(const tt_convolver *) bound;

void tt_convolve_bind(const tt_convolver *convolver) {
  atomic_store_explicit(&bound, convolver, memory_order_release);
}

bool tt_convolve_bound(void) { return atomic_load_explicit(&bound, memory_order_acquire) != NULL; }

/* `w` is the operand that has the kernel's dims. */
static tt_status read_config(const tt_ffi_call *call, int w, int operands, tt_convolution *out) {
  bool enough = call->operand_count >= operands && call->result_count > 0;
  int spatial = enough ? call->operands[w].type.rank - 2 : 0;
  *out = (tt_convolution){.spatial = spatial,
                          .stride = tt_ffi_ints(call, "stride", spatial),
                          .padding = tt_ffi_ints(call, "padding", spatial),
                          .dilation = tt_ffi_ints(call, "dilation", spatial),
                          .output_padding = tt_ffi_ints(call, "output_padding", spatial),
                          .groups = tt_ffi_int(call, "groups"),
                          .transposed = tt_ffi_int(call, "transposed"),
                          .last = tt_ffi_int(call, "last"),
                          .input = tt_ffi_int(call, "input"),
                          .weight = tt_ffi_int(call, "weight"),
                          .bias = tt_ffi_int(call, "bias")};
  if (spatial > 0 && out->stride && out->padding && out->dilation && out->output_padding)
    return TT_SUCCESS;
  return tt_error(TT_INVALID_ARGUMENT,
                  "a convolution takes %d arrays at least, with dims in space, and a stride, a "
                  "padding, a dilation and an output_padding for each of these dims",
                  operands);
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
