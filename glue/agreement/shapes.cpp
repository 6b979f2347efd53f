#include "agreement/shapes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/TensorIterator.h>

namespace tt {
namespace {

using Args = torch::jit::Stack;
using Tensors = std::vector<at::Tensor>;

// Whether one of the names is the row's.
bool among(const Plan& plan, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), plan.row->name) != names.end();
}

bool channels_last(const at::Tensor& tensor) {
  auto format = tensor.suggest_memory_format();
  return format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
}

// A convolution's result lies in memory as its image or its weight does, of doubles aside; its
// sizes were checked by who calls it. The arguments are those of aten::convolution.
void convolve(const Args& args, Tensors* results) {
  at::Tensor x = args[0].toTensor(), w = args[1].toTensor();
  auto stride = args[3].toIntVector(), padding = args[4].toIntVector();
  auto dilation = args[5].toIntVector(), more = args[7].toIntVector();
  auto sizes = args[6].toBool()
                   ? at::native::conv_input_size(x.sizes(), w.sizes(), padding, more, stride,
                                                 dilation, args[8].toInt())
                   : at::native::conv_output_size(x.sizes(), w.sizes(), padding, stride, dilation);
  bool last = (channels_last(x) || channels_last(w)) && x.scalar_type() != at::kDouble;
  auto format = !last          ? at::MemoryFormat::Contiguous
                : x.dim() == 4 ? at::MemoryFormat::ChannelsLast
                               : at::MemoryFormat::ChannelsLast3d;
  results->push_back(at::empty(sizes, x.options().memory_format(format)));
}

// Reflectors in columns that lie together, and their factors: geqrf has no Meta kernel.
void reflect(const Args& args, Tensors* results) {
  at::Tensor x = args[0].toTensor();
  if (x.dim() < 2) return;
  auto factors = x.sizes().slice(0, static_cast<size_t>(x.dim()) - 1).vec();
  factors.back() = std::min(x.size(-2), x.size(-1));
  results->push_back(at::empty(x.mT().sizes(), x.options()).mT());
  results->push_back(at::empty(factors, x.options()));
}

// The CPU keeps the statistics of a normalization in the input's dtype unless its parameters are
// wider; Meta kernels keep them in f32 for other devices.
void narrow_statistics(const Plan& plan, const Args& args, Tensors* results) {
  const std::string name = plan.row->name;
  bool layer = name == "native_layer_norm";
  bool batch = name.find("native_batch_norm") != std::string::npos &&
               name.find("backward") == std::string::npos;
  if (!layer && !batch) return;
  auto dtype = args[0].toTensor().scalar_type();
  for (const c10::IValue& value : c10::ArrayRef<c10::IValue>(args).slice(1))
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() != dtype)
      return;
  for (size_t i = 1; i < 3 && i < results->size(); i++)
    (*results)[i] = at::empty((*results)[i].sizes(), (*results)[i].options().dtype(dtype));
}

// In evaluation batch normalization saves no statistics on the CPU; its Meta kernels say it does.
void forget_statistics(const Plan& plan, const c10::OperatorHandle& op, const Args& args,
                       Tensors* results) {
  const std::string name = plan.row->name;
  bool evaluates = name == "_native_batch_norm_legit_no_training";
  if (name.rfind("native_batch_norm", 0) == 0 || name.rfind("_native_batch_norm_legit", 0) == 0) {
    auto training = op.schema().argumentIndexWithName("training");
    evaluates |= training && !args[static_cast<size_t>(*training)].toBool();
  }
  for (size_t i = 1; evaluates && i < 3 && i < results->size(); i++)
    (*results)[i] = at::empty({0}, (*results)[i].options());
}

// The loss of a lone sample has no dims on the CPU; its Meta kernel gives it one.
void forget_sample(const Plan& plan, const Args& args, Tensors* results) {
  if (plan.name != "aten::multilabel_margin_loss_forward" || args[0].toTensor().dim() > 1) return;
  (*results)[0] = at::empty({}, (*results)[0].options());
}

// The powers of two that a number is scaled by have a dtype of their own; its Meta kernel takes
// them in the number's.
void promote_power(const Plan& plan, const Args& args, Tensors* results) {
  if (plan.row->name != std::string("ldexp.Tensor") || results->empty()) return;
  auto dtype = at::result_type(args[0].toTensor(), args[1].toTensor());
  if (!c10::isIntegralType(dtype, true)) (*results)[0] = (*results)[0].to(dtype);
}

// These keep an image's channels last, as on the CPU; their Meta kernels do not.
void keep_format(const Plan& plan, const Args& args, Tensors* results) {
  if (results->empty() || !among(plan, {"channel_shuffle", "max_unpool2d"})) return;
  const at::Tensor& result = results->front();
  auto format = args[0].toTensor().suggest_memory_format();
  results->front() = at::empty(result.sizes(), result.options().memory_format(format));
}

void iterate_one(const Plan& plan, const Args& args, at::Tensor& result) {
  Tensors operands;
  bool fits = true;
  for (size_t i = 0; i < args.size(); i++)
    each_tensor(args[i], [&](const at::Tensor& one) {
      if (!one.defined() || plan.args[i].out) return;
      fits &= at::is_expandable_to(one.sizes(), result.sizes());
      operands.push_back(one);
    });
  if (!fits) return;
  if (among(plan,
            {"rsub.Tensor", "leaky_relu_backward", "threshold_backward", "log_sigmoid_backward"}))
    std::rotate(operands.begin(), operands.begin() + 1, operands.end());
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).check_all_same_device(false).set_check_mem_overlap(false);
  config.declare_static_dtype_and_device(result.scalar_type(), result.device());
  config.add_owned_output(at::Tensor());
  for (const at::Tensor& one : operands) config.add_const_input(one);
  result = config.build().output();
}

// Numbers computed element by element lie as PyTorch's iterator has it, but for a few; shape
// functions in Python do without it, and only come near.
void iterate(const Plan& plan, const Args& args, Tensors* results) {
  if (plan.row->cls != TT_POINTWISE) return;
  if (among(plan, {"pow.Scalar", "log_sigmoid_forward"}))
    for (at::Tensor& one : *results) one = at::empty(one.sizes(), one.options());
  // Noise counts in training alone.
  else if (results->size() == 1 && !among(plan, {"rrelu_with_noise_backward"}))
    iterate_one(plan, args, results->front());
}

}  // namespace

bool state_shapes(const Plan& plan, const Args& args, Tensors* results) {
  if (plan.name == "aten::convolution_overrideable") convolve(args, results);
  else if (plan.name == "aten::geqrf") reflect(args, results);
  return !results->empty();
}

void correct_shapes(const Plan& plan, const c10::OperatorHandle& op, const Args& args,
                    Tensors* results, Tensors* outs) {
  Tensors* stated = outs->empty() ? results : outs;
  if (outs->empty()) narrow_statistics(plan, args, results);
  forget_statistics(plan, op, args, stated);
  forget_sample(plan, args, results);
  promote_power(plan, args, results);
  keep_format(plan, args, stated);
  iterate(plan, args, stated);
}

}  // namespace tt
