// What DDP asks for besides a group's collectives: sums of sparse gradients, and times.
#include "distributed/distributed.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

namespace tt {
namespace {

// `one`, and behind it zeros along `dim` up to `length`.
at::Tensor lengthened(const at::Tensor& one, int64_t dim, int64_t length) {
  auto sizes = one.sizes().vec();
  sizes[static_cast<size_t>(dim)] = length;
  at::Tensor whole = at::zeros(sizes, one.options());
  whole.narrow(dim, 0, one.size(dim)).copy_(one);
  return whole;
}

// Of each rank `one`, which is as long as the others' along dim 0.
at::Tensor gathered(ProcessGroupTpu& group, at::Tensor one) {
  auto sizes = one.sizes().vec();
  sizes[0] *= group.getSize();
  at::Tensor all = at::empty(sizes, one.options());
  group._allgather_base(all, one, {});
  return all;
}

std::tuple<std::vector<at::Tensor>, Ptr<c10d::Work>>
reduce_sparse(at::TensorList tensors, const Ptr<c10d::ProcessGroup>& group,
              const Ptr<c10d::ReduceOp>& op, const std::optional<at::Tensor>&, bool,
              int64_t timeout) {
  c10d::AllreduceOptions options;
  options.reduceOp = *op;
  options.timeout = Milliseconds(timeout);
  auto all = tensors.vec();
  auto backend = group->getBackend(c10::DeviceType::PrivateUse1);
  return {all, backend->allreduce_sparse(all, options)};
}

// DDP's times are those of the host, which issues work and does not wait for it.
class IssueTimer final : public c10d::Timer {
 public:
  explicit IssueTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto from = getTimestamp(start), to = getTimestamp(end);
    if (!from || !to || *to < *from) return std::nullopt;
    return *to - *from;
  }
};

}  // namespace

// All ranks' elements together; those of one place are added. Their number is read on the host.
ProcessGroupTpu::Work ProcessGroupTpu::allreduce_sparse(Tensors& tensors,
                                                        const c10d::AllreduceOptions& options) {
  TORCH_CHECK(tensors.size() == 1 && options.reduceOp == c10d::ReduceOp::SUM,
              "all_reduce of sparse tensors takes one tensor, and sums");
  at::Tensor own = tensors[0].coalesce();
  at::Tensor count = at::full({1}, own._nnz(), own.indices().options());
  at::Tensor counts = gathered(*this, count).cpu();
  int64_t most = counts.max().item<int64_t>();
  at::Tensor places = gathered(*this, lengthened(own.indices(), 1, most).t().contiguous());
  at::Tensor values = gathered(*this, lengthened(own.values(), 0, most));
  Tensors some_places, some_values;
  for (int64_t rank = 0; rank < getSize(); rank++) {
    int64_t used = counts[rank].item<int64_t>();
    some_places.push_back(places.narrow(0, rank * most, used));
    some_values.push_back(values.narrow(0, rank * most, used));
  }
  at::Tensor sum = at::sparse_coo_tensor(at::cat(some_places).t(), at::cat(some_values),
                                         own.sizes(), own.options());
  tensors[0].copy_(sum.coalesce());
  return all_so_far(c10d::OpType::_ALLREDUCE_SPARSE, tensors);
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) { m.impl("allreduce_", &reduce_sparse); }

}  // namespace tt

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, tt::IssueTimer)
}
