/* The convolve room: convolutions that programs call, where they run in host memory.
 *
 * Whoever embeds the engine gives the functions that compute them (PyTorch's); this room
 * offers them to programs. x is [n, c, in..], w [o, c / groups, k..] ([c, o / groups, k..] where
 * `transposed`), y [n, o, out..], with 1 to 3 dims in space, all of one dtype: bf16, f32 or f64.
 *
 *   name                               operands      results
 *   torch_tpu.convolution              x, w[, bias]  y
 *   torch_tpu.convolution_backward     dy, x, w      those of dx, dw, dbias that are asked for
 *
 * Their config has what tt_convolution has, by its names: arrays of a number for each dim in space,
 * and integers, of which those that are 0 may be missing. Where `last`, the arrays x, y, dx and dy
 * have their channels last ([n, in.., c]), and w and dw likewise ([o, k.., c]). */
#ifndef TT_CONVOLVE_H
#define TT_CONVOLVE_H

#include "pjrt/ffi.h"

typedef struct tt_convolution {
  int spatial;
  const int64_t *stride, *padding, *dilation, *output_padding; /* [spatial] good during the call */
  int64_t groups;
  bool transposed, last;
  bool input, weight, bias; /* which results are asked for */
} tt_convolution;

/* Both are called by threads of XLA's, several at once. NULL stands for what is not there. */
typedef struct tt_convolver {
  tt_status (*forward)(const tt_convolution *of, const tt_ffi_array *x, const tt_ffi_array *w,
                       const tt_ffi_array *bias, const tt_ffi_array *y);
  tt_status (*backward)(const tt_convolution *of, const tt_ffi_array *dy, const tt_ffi_array *x,
                        const tt_ffi_array *w, const tt_ffi_array *dx, const tt_ffi_array *dw,
                        const tt_ffi_array *dbias);
} tt_convolver;

/* Once, before a session is opened. Borrowed for ever. */
void tt_convolve_bind(const tt_convolver *convolver);
bool tt_convolve_bound(void);

/* Makes them known to programs of the CPU platform. UNIMPLEMENTED: the plugin takes none. */
tt_status tt_convolve_offer(tt_plugin *plugin);

#endif
