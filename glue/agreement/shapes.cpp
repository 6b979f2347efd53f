#include "agreement/agreement.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/TensorIterator.h>

namespace tt {
namespace {

using Args = torch::jit::Stack;
using Tensors = std::vector<at::Tensor>;

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
  auto format = x.suggest_memory_format();
  if (format == at::MemoryFormat::Contiguous) format = w.suggest_memory_format();
  if (x.scalar_type() == at::kDouble) format = at::MemoryFormat::Contiguous;
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
// wider.
void narrow_statistics(const Plan&, const Args& args, Tensors& results) {
  auto dtype = args[0].toTensor().scalar_type();
  bool same = true;
  for (const c10::IValue& value : args)
    each_tensor(value, [&](const at::Tensor& one) {
      same &= !one.defined() || one.scalar_type() == dtype;
    });
  for (size_t i = 1; same && i < 3 && i < results.size(); i++)
    results[i] = at::empty(results[i].sizes(), results[i].options().dtype(dtype));
}

bool training(const Plan& plan, const Args& args) {
  return plan.argument >= 0 && args[static_cast<size_t>(plan.argument)].toBool();
}

void forget_statistics(const Plan& plan, const Args& args, Tensors& results) {
  for (size_t i = 1; !training(plan, args) && i < 3 && i < results.size(); i++)
    results[i] = at::empty({0}, results[i].options());
}

void forget_sample_dim(const Plan&, const Args& args, Tensors& results) {
  if (args[0].toTensor().dim() <= 1) results[0] = at::empty({}, results[0].options());
}

void promote(const Plan&, const Args& args, Tensors& results) {
  auto dtype = at::result_type(args[0].toTensor(), args[1].toTensor());
  if (!c10::isIntegralType(dtype, true)) results[0] = results[0].to(dtype);
}

void keep_format(const Plan&, const Args& args, Tensors& results) {
  auto format = args[0].toTensor().suggest_memory_format();
  results[0] = at::empty(results[0].sizes(), results[0].options().memory_format(format));
}

void lay_by_rows(const Plan&, const Args&, Tensors& results) {
  for (at::Tensor& one : results) one = at::empty(one.sizes(), one.options());
}

void lay_like_first(const Plan&, const Args& args, Tensors& results) {
  results[0] = at::empty_like(args[0].toTensor());
}

// Numbers computed element by element lie as PyTorch's iterator has it; shape functions in Python
// do without it, and only come near.
void iterate(const Plan& plan, const Args& args, at::Tensor& result) {
  Tensors operands;
  bool fits = true;
  for (size_t i = 0; i < args.size(); i++)
    each_tensor(args[i], [&](const at::Tensor& one) {
      if (!one.defined() || plan.args[i].out) return;
      fits &= at::is_expandable_to(one.sizes(), result.sizes());
      operands.push_back(one);
    });
  if (!fits) return;
  if (plan.agreed.has(Agree::SecondFirst)) std::swap(operands[0], operands[1]);
  if (plan.agreed.has(Agree::WithNoise))
    operands = {operands[training(plan, args) ? 2 : 1], operands[0]};
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).check_all_same_device(false).set_check_mem_overlap(false);
  config.declare_static_dtype_and_device(result.scalar_type(), result.device());
  config.add_owned_output(at::Tensor());
  for (const at::Tensor& one : operands) config.add_const_input(one);
  result = config.build().output();
}

constexpr struct {
  Agree kind;
  void (*correct)(const Plan& plan, const Args& args, Tensors& results);
} kCorrections[] = {
    {Agree::NarrowStatistics, narrow_statistics},
    {Agree::NoStatistics, forget_statistics},
    {Agree::NoSampleDim, forget_sample_dim},
    {Agree::Promotes, promote},
    {Agree::KeepsFormat, keep_format},
    {Agree::Contiguous, lay_by_rows},
    {Agree::LikeFirst, lay_like_first},
};

}  // namespace

bool state_shapes(const Plan& plan, const Args& args, Tensors* results) {
  if (plan.row_args < static_cast<int>(args.size())) return false;
  if (plan.agreed.has(Agree::Convolved)) convolve(args, results);
  if (plan.agreed.has(Agree::Reflected)) reflect(args, results);
  return !results->empty();
}

void correct_shapes(const Plan& plan, const Args& args, Tensors& results) {
  if (results.empty()) return;
  for (const auto& one : kCorrections)
    if (plan.agreed.has(one.kind)) one.correct(plan, args, results);
  bool otherwise = plan.agreed.has(Agree::Contiguous) || plan.agreed.has(Agree::LikeFirst);
  if (plan.row->cls == TT_POINTWISE && results.size() == 1 && !otherwise)
    iterate(plan, args, results[0]);
}

}  // namespace tt
