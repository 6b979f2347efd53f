// Collectives of a plugin that neither spans processes nor calls functions of ours: operators of
// the host, which the dispatcher falls back to as for any other (dispatch/fallback.cpp).
#include "dispatch/convert.h"
#include "distributed/distributed.h"

#include <torch/library.h>

namespace tt {
namespace {

// What is only moved is bytes.
void lend(const at::Tensor& tensor, bool reduces, const void** data, int64_t* count) {
  if (!tensor.defined()) return;
  *data = tensor.data_ptr();
  *count = tensor.numel() * (reduces ? 1 : tensor.element_size());
}

void collective(at::Tensor& turn, at::TensorList inputs, at::TensorList outputs, int64_t kind,
                int64_t op, const at::Scalar& root, const at::Scalar& tag, const at::Scalar& site,
                at::IntArrayRef splits, at::IntArrayRef, int64_t, int64_t) {
  tt_collective c{};
  c.kind = static_cast<tt_collective_kind>(kind);
  bool mean = op == TT_REDUCE_AVG, reduces = tt_collective_reduces(c.kind);
  c.op = mean ? TT_REDUCE_SUM : static_cast<tt_reduction>(op);
  c.root = root.toLong();
  c.tag = tag.toLong();
  c.site = static_cast<uint32_t>(site.toLong());
  at::Tensor x = flat(inputs), y = flat(outputs);
  c.dtype = reduces && y.defined() ? require_dtype(y.scalar_type()) : TT_U8;
  if (reduces) check(tt_reduction_check(c.op, c.dtype));
  const void* to = nullptr;
  lend(x, reduces, &c.x, &c.x_count);
  lend(y, reduces, &to, &c.y_count);
  c.y = const_cast<void*>(to);
  auto parts = splits.vec();
  int64_t unit = !reduces && x.defined() ? x.element_size() : 1;
  for (int64_t& part : parts) part *= unit;
  if (!parts.empty()) {
    c.x_splits = parts.data();
    c.y_splits = parts.data() + parts.size() / 2;
  }
  auto* words = turn.mutable_data_ptr<int64_t>();
  check(tt_dist_run(words, &c, words));
  if (mean && y.is_floating_point()) y.div_(words[TT_TURN_SIZE]);
  else if (mean) y.div_(words[TT_TURN_SIZE], "trunc");
  if (y.defined()) unflatten(y, outputs);
}

TORCH_LIBRARY_IMPL(torch_tpu, CPU, m) { m.impl("collective_", &collective); }

}  // namespace
}  // namespace tt
