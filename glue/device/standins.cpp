#include "device/standins.h"

#include <ATen/Functions.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

extern "C" {
#include "kernels/draw.h"
}

namespace tt {
namespace {

using at::Tensor;
using torch::jit::Stack;

// A tensor that may be missing.
std::optional<Tensor> optional(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return std::nullopt;
  return value.toTensor();
}

at::ScalarType wide(at::ScalarType type) { return type == at::kDouble ? type : at::kFloat; }
Tensor wide(const Tensor& x) { return x.to(wide(x.scalar_type())); }

template <class... Results> void leave(Stack& stack, Results... results) {
  stack.clear();
  (stack.emplace_back(std::move(results)), ...);
}

// -- Convolutions: the rows' names are those of kernels that others are to override --

// The CPU convolves f16 by loops that are slow.
Tensor convolved(const Tensor& x) { return x.scalar_type() == at::kHalf ? x.to(at::kFloat) : x; }

void convolution(Stack& stack, const Draws&) {
  std::optional<Tensor> bias = optional(stack[2]);
  if (bias) bias = convolved(*bias);
  leave(stack,
        at::convolution(convolved(stack[0].toTensor()), convolved(stack[1].toTensor()), bias,
                        stack[3].toIntVector(), stack[4].toIntVector(), stack[5].toIntVector(),
                        stack[6].toBool(), stack[7].toIntVector(), stack[8].toInt()));
}

void convolution_backward(Stack& stack, const Draws&) {
  Tensor grad = convolved(stack[0].toTensor());
  auto mask = stack[9].toBoolList();
  auto [input, weight, bias] = at::convolution_backward(
      grad, convolved(stack[1].toTensor()), convolved(stack[2].toTensor()), {{grad.size(1)}},
      stack[3].toIntVector(), stack[4].toIntVector(), stack[5].toIntVector(), stack[6].toBool(),
      stack[7].toIntVector(), stack[8].toInt(), {mask[0], mask[1], mask[2]});
  leave(stack, input, weight, bias);
}

// -- Dropout --

// Which of `count` elements from `first` on are kept, as booleans of these sizes.
Tensor kept(const Draws& draws, int64_t first, at::IntArrayRef sizes, double keep) {
  Tensor units = at::empty(sizes, at::kFloat);
  tt_draw_units(draws.seed, draws.offset, first, units.numel(), units.data_ptr<float>());
  return units < static_cast<float>(keep);
}

void native_dropout(Stack& stack, const Draws& draws) {
  Tensor x = stack[0].toTensor();
  if (x.numel() == 0 || (!stack[2].isNone() && !stack[2].toBool()))
    return leave(stack, x, at::ones_like(x, at::kBool));
  double keep = 1.0 - stack[1].toDouble();
  Tensor mask = kept(draws, 0, x.sizes(), keep);
  double divisor = keep == 0.0 ? INFINITY : keep;
  leave(stack, (x.to(at::kFloat) * mask) / static_cast<float>(divisor), mask);
}

// -- Attention (core/ops/attention) --

constexpr int64_t kMostLogits = 1 << 24;  // of which a block of rows has no more

// What a bias, or its gradient, has of these rows: all of it where it is the same for each.
Tensor of_rows(const Tensor& bias, int64_t first, int64_t count) {
  return bias.dim() > 1 && bias.size(-2) != 1 ? bias.narrow(-2, first, count) : bias;
}

struct Attention {
  Tensor q, k, v;
  std::optional<Tensor> bias;
  double scale, dropout;
  bool causal;
  Draws draws;

  Attention(const Stack& stack, size_t first, size_t dropout_at, size_t scale_at, Draws from)
      : q(wide(stack[first].toTensor())), k(wide(stack[first + 1].toTensor())),
        v(wide(stack[first + 2].toTensor())), bias(optional(stack[first + 3])),
        dropout(stack[dropout_at].toDouble()), causal(stack[dropout_at + 1].toBool()), draws(from) {
    auto size = static_cast<double>(q.size(-1));
    scale =
        stack[scale_at].isNone() ? 1 / std::sqrt(size > 0 ? size : 1) : stack[scale_at].toDouble();
  }

  int64_t rows() const { return q.size(-2); }
  int64_t heads() const { return c10::multiply_integers(q.sizes().slice(0, q.dim() - 2)); }

  template <class Visit> void each_block(Visit visit) const {
    int64_t most = kMostLogits / std::max<int64_t>(1, heads() * k.size(-2));
    int64_t block = std::max<int64_t>(1, most);
    for (int64_t first = 0; first < rows(); first += block)
      visit(first, std::min(block, rows() - first));
  }

  // Between [.., heads, rows, x] and [.., key's heads, group * rows, x].
  Tensor joined(const Tensor& x) const {
    if (x.dim() < 3 || q.size(-3) == k.size(-3)) return x;
    auto sizes = x.sizes().vec();
    auto at = sizes.size() - 3;
    sizes[at] = k.size(-3);
    sizes[at + 1] *= q.size(-3) / k.size(-3);
    return x.reshape(sizes);
  }
  Tensor of_queries(const Tensor& x, const Tensor& y) const {
    auto sizes = x.sizes().vec();
    sizes.back() = y.size(-1);
    return at::matmul(joined(x), y).reshape(sizes);
  }
  Tensor of_keys(const Tensor& x, const Tensor& y) const {
    return at::matmul(joined(x).mT(), joined(y));
  }

  // Of these rows, -inf where they are masked.
  Tensor logits(int64_t first, int64_t count) const {
    Tensor x = of_queries(q.narrow(-2, first, count), k.mT()).mul_(scale);
    if (bias) {
      Tensor rows = of_rows(*bias, first, count);
      if (rows.scalar_type() == at::kBool) x.masked_fill_(~rows, -INFINITY);
      else x.add_(rows.to(x.scalar_type()));
    }
    if (!causal) return x;
    Tensor past = at::ones({count, k.size(-2)}, at::kBool).tril(first);
    return x.masked_fill_(~past, -INFINITY);
  }

  // What dropout multiplies the probabilities of these rows by.
  Tensor factor(int64_t first, int64_t count) const {
    int64_t columns = k.size(-2);
    auto sizes = q.sizes().vec();
    sizes[sizes.size() - 2] = count;
    sizes.back() = columns;
    if (dropout >= 1) return at::zeros(sizes, q.options());
    std::vector<Tensor> of;
    for (int64_t head = 0; head < heads(); head++)
      of.push_back(kept(draws, (head * rows() + first) * columns, {count, columns}, 1 - dropout));
    return at::stack(of).reshape(sizes).to(q.scalar_type()).mul_(1 / (1 - dropout));
  }
};

// A row that is masked everywhere has no probabilities.
Tensor probabilities(Tensor logits, const Tensor& lse) {
  return logits.sub_(lse.masked_fill(lse == -INFINITY, 0).unsqueeze(-1)).exp_();
}

void attention(Stack& stack, const Draws& draws) {
  Attention a(stack, 0, 4, 7, draws);
  at::ScalarType half = stack[2].toTensor().scalar_type();
  auto sizes = a.q.sizes().vec();
  sizes.back() = a.v.size(-1);
  Tensor y = at::empty(sizes, a.q.options()), lse;
  sizes.pop_back();
  lse = at::empty(sizes, a.q.options());
  a.each_block([&](int64_t first, int64_t count) {
    Tensor x = a.logits(first, count), sum = at::logsumexp(x, -1);
    Tensor p = probabilities(x, sum);
    if (a.dropout > 0) p.mul_(a.factor(first, count));
    lse.narrow(-1, first, count).copy_(sum);
    y.narrow(-2, first, count).copy_(a.of_queries(wide(p.to(half)), a.v));
  });
  auto place = [&](uint64_t of) {
    return at::scalar_tensor(a.dropout > 0 ? static_cast<int64_t>(of) : 0, at::kLong);
  };
  leave(stack, y, lse, Tensor(), Tensor(), int64_t{0}, int64_t{0}, place(draws.seed),
        place(draws.offset), Tensor());
}

void attention_backward(Stack& stack, const Draws&) {
  auto word = [&](size_t at) {
    std::optional<Tensor> one = optional(stack[at]);
    return one ? static_cast<uint64_t>(one->item<int64_t>()) : 0;
  };
  Attention a(stack, 1, 12, 16, {word(14), word(15)});
  at::ScalarType half = stack[1].toTensor().scalar_type();
  Tensor grad = wide(stack[0].toTensor()), out = wide(stack[6].toTensor());
  Tensor dq = at::zeros_like(a.q), dk = at::zeros_like(a.k), dv = at::zeros_like(a.v), dbias;
  if (a.bias) dbias = at::zeros(a.bias->sizes(), a.q.options());
  a.each_block([&](int64_t first, int64_t count) {
    Tensor x = a.logits(first, count), factor;
    Tensor p = probabilities(x, at::logsumexp(x, -1)), dy = grad.narrow(-2, first, count);
    if (a.dropout > 0) factor = a.factor(first, count);
    dv += a.of_keys(wide((factor.defined() ? p * factor : p).to(half)), dy);
    Tensor dp = a.of_queries(dy, a.v.mT());
    if (factor.defined()) dp.mul_(factor);
    Tensor ds = dp.sub_((dy * out.narrow(-2, first, count)).sum(-1, true)).mul_(p);
    if (a.bias) {
      Tensor to = of_rows(dbias, first, count);
      to += ds.sum_to_size(to.sizes());
    }
    ds = wide(ds.mul_(a.scale).to(half));
    dq.narrow(-2, first, count).copy_(a.of_queries(ds, a.k));
    dk += a.of_keys(ds, a.q.narrow(-2, first, count));
  });
  leave(stack, dq, dk, dv, dbias);
}

// -- Products in groups --

// A group is rows of a, columns of b, or what is summed over; it ends where a slice would.
void grouped_mm(Stack& stack, const Draws&) {
  Tensor a = wide(stack[0].toTensor()), b = wide(stack[1].toTensor());
  std::optional<Tensor> ends = optional(stack[2]);
  if (!ends) return leave(stack, at::bmm(a, b));
  int64_t groups = ends->numel(), first = 0;
  bool summed = a.dim() == 2 && b.dim() == 2;
  std::vector<int64_t> sizes{a.size(-2), b.size(-1)};
  if (summed) sizes.insert(sizes.begin(), groups);
  Tensor y = at::zeros(sizes, a.options());
  for (int64_t g = 0, last = 0; g < groups; g++, first = last) {
    last = (*ends)[g].item<int64_t>();
    Tensor part = summed ? y[g] : y.slice(b.dim() == 3 ? 0 : 1, first, last);
    if (b.dim() == 3) part.copy_(at::mm(a.slice(0, first, last), b[g]));
    else if (a.dim() == 3) part.copy_(at::mm(a[g], b.slice(1, first, last)));
    else part.copy_(at::mm(a.slice(1, first, last), b.slice(0, first, last)));
  }
  leave(stack, y);
}

constexpr StandIn kStandIns[] = {
    {"aten::_grouped_mm", grouped_mm, false},
    {"aten::convolution_overrideable", convolution, false},
    {"aten::convolution_backward_overrideable", convolution_backward, false},
    {"aten::native_dropout", native_dropout, true},
    {"aten::_scaled_dot_product_fused_attention_overrideable", attention, true},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", attention_backward, false},
};

// -- Kernels that write, or read, wherever an index leads --

void check(const c10::IValue& indices, int64_t count, int64_t ignored) {
  const Tensor& at = indices.toTensor();
  TORCH_CHECK((((at >= 0) & (at < count)) | (at == ignored)).all().item<bool>(),
              "an index is out of range");
}

void check_words(const Stack& stack) { check(stack[1], stack[2].toInt(), stack[3].toInt()); }

void check_places(const Stack& stack) {
  const Tensor& x = stack[1].toTensor();
  check(stack[7], x.size(-1) * x.size(-2), 0);
}

void check_labels(const Stack& stack) {
  const Tensor& x = stack[1].toTensor();
  check(stack[2], x.size(x.dim() == 1 ? 0 : 1), stack[5].toInt());
}

struct Trusting {
  const char* row;
  Check check;
};

constexpr Trusting kTrusting[] = {
    {"aten::embedding_dense_backward", check_words},
    {"aten::max_pool2d_with_indices_backward", check_places},
    {"aten::nll_loss_backward", check_labels},
    {"aten::nll_loss2d_backward", check_labels},
};

// nullptr: no entry of the table is about the row.
template <class Entry, size_t count>
const Entry* entry_of(const char* row, const Entry (&table)[count]) {
  for (const Entry& one : table)
    if (std::strcmp(one.row, row) == 0) return &one;
  return nullptr;
}

}  // namespace

const StandIn* stand_in_of(const char* row) { return entry_of(row, kStandIns); }

Check check_of(const char* row) {
  const Trusting* one = entry_of(row, kTrusting);
  return one ? one->check : nullptr;
}

}  // namespace tt
