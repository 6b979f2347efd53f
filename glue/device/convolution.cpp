// Convolutions as PyTorch's CPU computes them, for programs that run in host memory.
#include "device/library.h"
#include "dispatch/convert.h"

#include <ATen/Functions.h>

#include <optional>
#include <string>
#include <vector>

extern "C" {
#include "convolve/convolve.h"
}

namespace tt {
namespace {

using Dims = std::vector<int64_t>;

// An array with its channels in dim 1, wherever they lie.
at::Tensor tensor_of(const tt_ffi_array& array, bool last) {
  Dims sizes(array.type.dims, array.type.dims + array.type.rank);
  auto options = at::TensorOptions().dtype(from_dtype(array.type.dtype));
  at::Tensor all = at::from_blob(array.data, sizes, options);
  return last && all.dim() > 1 ? all.movedim(-1, 1) : all;
}

std::optional<at::Tensor> tensor_if(const tt_ffi_array* array) {
  return array ? std::optional(tensor_of(*array, false)) : std::nullopt;
}

Dims dims_of(const int64_t* list, const tt_convolution& of) { return {list, list + of.spatial}; }

double products(const tt_convolution& of, const tt_ffi_array& x, const tt_ffi_array& w,
                const tt_ffi_array& y) {
  const tt_type& places = (of.transposed ? x : y).type;
  return static_cast<double>(tt_type_numel(&places)) * static_cast<double>(tt_type_numel(&w.type)) /
         static_cast<double>(w.type.dims[0]);
}

tt_status forward(const tt_convolution* of, const tt_ffi_array* x, const tt_ffi_array* w,
                  const tt_ffi_array* bias, const tt_ffi_array* y) {
  return run_in_library(products(*of, *x, *w, *y), [&]() -> tt_status {
    at::Tensor result = at::convolution(
        tensor_of(*x, of->last), tensor_of(*w, of->last), tensor_if(bias), dims_of(of->stride, *of),
        dims_of(of->padding, *of), dims_of(of->dilation, *of), of->transposed,
        dims_of(of->output_padding, *of), of->groups);
    tensor_of(*y, of->last).copy_(result);
    return TT_SUCCESS;
  });
}

tt_status backward(const tt_convolution* of, const tt_ffi_array* dy, const tt_ffi_array* x,
                   const tt_ffi_array* w, const tt_ffi_array* dx, const tt_ffi_array* dw,
                   const tt_ffi_array* dbias) {
  return run_in_library(products(*of, *x, *w, *dy), [&]() -> tt_status {
    at::Tensor grad = tensor_of(*dy, of->last);
    auto [input, weight, bias] = at::convolution_backward(
        grad, tensor_of(*x, of->last), tensor_of(*w, of->last), Dims{grad.size(1)},
        dims_of(of->stride, *of), dims_of(of->padding, *of), dims_of(of->dilation, *of),
        of->transposed, dims_of(of->output_padding, *of), of->groups,
        {of->input, of->weight, of->bias});
    if (dx) tensor_of(*dx, of->last).copy_(input);
    if (dw) tensor_of(*dw, of->last).copy_(weight);
    if (dbias) tensor_of(*dbias, false).copy_(bias);
    return TT_SUCCESS;
  });
}

}  // namespace

void bind_convolutions() {
  static const tt_convolver pytorch = {forward, backward};
  tt_convolve_bind(&pytorch);
}

}  // namespace tt
