// Convolutions as PyTorch's CPU computes them, for programs that run in host memory.
#include "dispatch/dispatch.h"

#include <ATen/Functions.h>
#include <c10/core/thread_pool.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

extern "C" {
#include "convolve/convolve.h"
}

namespace tt {
namespace {

using Dims = std::vector<int64_t>;

// Whoever launches a program may do so under modes, autocast, or transforms of PyTorch's, which are
// not about what the program computes.
struct Plain {
  c10::impl::ForceDispatchKeyGuard keys{c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
                                        c10::default_excluded_set |
                                            c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

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

template <class Act> tt_status computed(const Act& act) {
  return attempt(TT_INTERNAL, [&] {
    Plain plain;
    act();
  });
}

// -- Threads --

// OpenMP's and MKL's functions, as libtorch has them: they are about the thread that calls them.
template <class Function> Function* find(const char* name) {
  return reinterpret_cast<Function*>(find_in_torch(name));
}

// The thread computes alone.
class Alone {
 public:
  Alone() {
    if (omp_) omp_(1);
    if (mkl_) mkl_before_ = mkl_(1);
  }
  ~Alone() {
    if (omp_) omp_(omp_before_);
    if (mkl_) mkl_(mkl_before_);
  }

 private:
  static inline auto* const asked_ = find<int()>("omp_get_max_threads");
  static inline auto* const omp_ = asked_ ? find<void(int)>("omp_set_num_threads") : nullptr;
  static inline auto* const mkl_ = find<int(int)>("MKL_Set_Num_Threads_Local");
  int omp_before_ = omp_ ? asked_() : 0, mkl_before_ = 0;
};

// Each thread that asks OpenMP for others gets its own, and to wake them takes longer than a small
// convolution: that one is computed by the calling thread alone, others by the threads of one.
constexpr double kLarge = 1 << 24;  // products: 0.3 ms of a thread, forward

double products(const tt_convolution& of, const tt_ffi_array& x, const tt_ffi_array& w,
                const tt_ffi_array& y) {
  const tt_type& places = (of.transposed ? x : y).type;
  return static_cast<double>(tt_type_numel(&places)) * static_cast<double>(tt_type_numel(&w.type)) /
         static_cast<double>(w.type.dims[0]);
}

// Lives as long as the process, in which programs may run until it exits.
c10::ThreadPool& the_one() {
  static auto* one = new c10::ThreadPool(1);
  return *one;
}

template <class Act> tt_status divided(double products, const Act& act) {
  if (products < kLarge) {
    Alone alone;
    return computed(act);
  }
  std::promise<tt_status> done;
  the_one().run([&] { done.set_value(computed(act)); });
  return done.get_future().get();
}

tt_status forward(const tt_convolution* of, const tt_ffi_array* x, const tt_ffi_array* w,
                  const tt_ffi_array* bias, const tt_ffi_array* y) {
  return divided(products(*of, *x, *w, *y), [&] {
    at::Tensor result = at::convolution(
        tensor_of(*x, of->last), tensor_of(*w, of->last), tensor_if(bias), dims_of(of->stride, *of),
        dims_of(of->padding, *of), dims_of(of->dilation, *of), of->transposed,
        dims_of(of->output_padding, *of), of->groups);
    tensor_of(*y, of->last).copy_(result);
  });
}

tt_status backward(const tt_convolution* of, const tt_ffi_array* dy, const tt_ffi_array* x,
                   const tt_ffi_array* w, const tt_ffi_array* dx, const tt_ffi_array* dw,
                   const tt_ffi_array* dbias) {
  return divided(products(*of, *x, *w, *dy), [&] {
    at::Tensor grad = tensor_of(*dy, of->last);
    auto [input, weight, bias] = at::convolution_backward(
        grad, tensor_of(*x, of->last), tensor_of(*w, of->last), Dims{grad.size(1)},
        dims_of(of->stride, *of), dims_of(of->padding, *of), dims_of(of->dilation, *of),
        of->transposed, dims_of(of->output_padding, *of), of->groups,
        {of->input, of->weight, of->bias});
    if (dx) tensor_of(*dx, of->last).copy_(input);
    if (dw) tensor_of(*dw, of->last).copy_(weight);
    if (dbias) tensor_of(*dbias, false).copy_(bias);
  });
}

}  // namespace

void bind_convolutions() {
  static const tt_convolver pytorch = {forward, backward};
  tt_convolve_bind(&pytorch);
}

}  // namespace tt
