// Each of torch.distributed's collectives, as one that the group issues; its arguments are checked.
#include "dispatch/convert.h"
#include "distributed/distributed.h"

namespace tt {
namespace {

using c10d::OpType;

tt_dist_tensor extent(const at::Tensor& one) {
  return {one.numel(), require_dtype(one.scalar_type())};
}

// A list of a tensor like `one` for each rank.
void check_parts(const char* what, const char* list, const std::vector<at::Tensor>& parts,
                 const at::Tensor& one, int size) {
  std::vector<tt_dist_tensor> extents;
  for (const at::Tensor& part : parts) extents.push_back(extent(part));
  auto count = static_cast<int64_t>(extents.size());
  check(tt_dist_check_parts(what, list, extents.data(), count, extent(one), size));
}

bool are_uneven(const std::vector<at::Tensor>& parts) {
  auto other = [&](const at::Tensor& one) { return one.numel() != parts[0].numel(); };
  return std::any_of(parts.begin(), parts.end(), other);
}

// A list of a tensor for each rank, of which this one's is like `one`.
const at::Tensor& own_part(const char* what, const char* list, const std::vector<at::Tensor>& parts,
                           const at::Tensor& one, int rank, int size) {
  TORCH_CHECK(parts.size() == static_cast<size_t>(size), what, ": the ", list, " list has ",
              parts.size(), " tensors, but the group has ", size, " ranks");
  const at::Tensor& own = parts[static_cast<size_t>(rank)];
  check_parts(what, list, {own}, one, 1);
  return own;
}

// In elements, of what is split along dim 0.
void add_splits(std::vector<int64_t>& to, const at::Tensor& tensor,
                const std::vector<int64_t>& splits, int size) {
  int64_t rows = tensor.dim() ? tensor.size(0) : 1;
  int64_t row = rows ? tensor.numel() / rows : 0;
  std::vector<int64_t> elements(static_cast<size_t>(size));
  check(tt_dist_split(rows, row, splits.data(), static_cast<int64_t>(splits.size()), size,
                      elements.data()));
  to.insert(to.end(), elements.begin(), elements.end());
}

// What is asked of several tensors, one after another: the last one's work stands for all.
template <class Issue> Ptr<c10d::Work> in_turn(size_t count, const Issue& issue) {
  Ptr<c10d::Work> last;
  for (size_t i = 0; i < count; i++) last = issue(i);
  return last;
}

}  // namespace

ProcessGroupTpu::Work ProcessGroupTpu::broadcast(Tensors& tensors,
                                                 const c10d::BroadcastOptions& options) {
  return issue({TT_COLLECTIVE_BROADCAST, {}, options.rootRank}, OpType::BROADCAST, {}, tensors);
}

ProcessGroupTpu::Work ProcessGroupTpu::allreduce(Tensors& tensors,
                                                 const c10d::AllreduceOptions& options) {
  return issue({TT_COLLECTIVE_ALL_REDUCE, options.reduceOp}, OpType::ALLREDUCE, {}, tensors);
}

ProcessGroupTpu::Work
ProcessGroupTpu::allreduce_coalesced(Tensors& tensors,
                                     const c10d::AllreduceCoalescedOptions& options) {
  return issue({TT_COLLECTIVE_ALL_REDUCE, options.reduceOp}, OpType::ALLREDUCE_COALESCED, {},
               tensors);
}

ProcessGroupTpu::Work ProcessGroupTpu::reduce(Tensors& tensors,
                                              const c10d::ReduceOptions& options) {
  return issue({TT_COLLECTIVE_REDUCE, options.reduceOp, options.rootRank}, OpType::REDUCE, {},
               tensors);
}

ProcessGroupTpu::Work ProcessGroupTpu::allgather(Lists& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions&) {
  TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1,
              "all_gather takes one tensor, and one list");
  if (are_uneven(outputs[0])) return gather_uneven(outputs[0], inputs[0]);
  check_parts("all_gather", "output", outputs[0], inputs[0], getSize());
  return issue({TT_COLLECTIVE_ALL_GATHER}, OpType::ALLGATHER, inputs, outputs[0]);
}

// Each rank's tensor is broadcast.
ProcessGroupTpu::Work ProcessGroupTpu::gather_uneven(Tensors& outputs, const at::Tensor& input) {
  at::NoGradGuard no_grad;
  at::Tensor own = own_part("all_gather", "output", outputs, input, getRank(), getSize());
  own.copy_(input.reshape(own.sizes()));
  for (int rank = 0; rank < getSize(); rank++)
    issue({TT_COLLECTIVE_BROADCAST, {}, rank}, OpType::BROADCAST, {},
          {outputs[static_cast<size_t>(rank)]});
  return all_so_far(OpType::ALLGATHER, outputs);
}

ProcessGroupTpu::Work ProcessGroupTpu::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::AllgatherOptions&) {
  check(tt_dist_check_whole("all_gather_into_tensor", "output", extent(output), "input",
                            extent(input), getSize()));
  return issue({TT_COLLECTIVE_ALL_GATHER}, OpType::_ALLGATHER_BASE, {input}, {output});
}

ProcessGroupTpu::Work ProcessGroupTpu::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  return in_turn(inputs.size(), [&](size_t i) {
    Tensors one{inputs[i]};
    Lists list(1);
    for (const Tensors& of_rank : outputs) list[0].push_back(of_rank.at(i));
    return allgather(list, one, options);
  });
}

ProcessGroupTpu::Work
ProcessGroupTpu::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  return in_turn(inputs.size(),
                 [&](size_t i) { return _allgather_base(outputs.at(i), inputs[i], options); });
}

ProcessGroupTpu::Work ProcessGroupTpu::gather(Lists& outputs, Tensors& inputs,
                                              const c10d::GatherOptions& options) {
  bool is_root = options.rootRank == getRank();
  TORCH_CHECK(inputs.size() == 1 && outputs.size() == (is_root ? 1 : 0),
              "gather takes one tensor, and a list on the rank that gathers alone");
  if (is_root) check_parts("gather", "output", outputs[0], inputs[0], getSize());
  return issue({TT_COLLECTIVE_GATHER, {}, options.rootRank}, OpType::GATHER, inputs,
               is_root ? outputs[0] : Tensors());
}

ProcessGroupTpu::Work ProcessGroupTpu::scatter(Tensors& outputs, Lists& inputs,
                                               const c10d::ScatterOptions& options) {
  bool is_root = options.rootRank == getRank();
  TORCH_CHECK(outputs.size() == 1 && inputs.size() == (is_root ? 1 : 0),
              "scatter takes one tensor, and a list on the rank that scatters alone");
  if (is_root) check_parts("scatter", "input", inputs[0], outputs[0], getSize());
  return issue({TT_COLLECTIVE_SCATTER, {}, options.rootRank}, OpType::SCATTER,
               is_root ? inputs[0] : Tensors(), outputs);
}

ProcessGroupTpu::Work ProcessGroupTpu::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                      const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1,
              "reduce_scatter takes one list, and one tensor");
  if (are_uneven(inputs[0])) return scatter_uneven(outputs, inputs[0], options.reduceOp);
  check_parts("reduce_scatter", "input", inputs[0], outputs[0], getSize());
  return issue({TT_COLLECTIVE_REDUCE_SCATTER, options.reduceOp}, OpType::REDUCE_SCATTER, inputs[0],
               outputs);
}

// What each rank is to have is reduced to it.
ProcessGroupTpu::Work ProcessGroupTpu::scatter_uneven(Tensors& outputs, const Tensors& inputs,
                                                      const c10d::ReduceOp& reduction) {
  at::NoGradGuard no_grad;
  own_part("reduce_scatter", "input", inputs, outputs[0], getRank(), getSize());
  for (int rank = 0; rank < getSize(); rank++) {
    at::Tensor part = inputs[static_cast<size_t>(rank)].clone();
    issue({TT_COLLECTIVE_REDUCE, reduction, rank}, OpType::REDUCE, {}, {part});
    if (rank == getRank()) outputs[0].copy_(part.reshape(outputs[0].sizes()));
  }
  return all_so_far(OpType::REDUCE_SCATTER, outputs);
}

ProcessGroupTpu::Work
ProcessGroupTpu::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  check(tt_dist_check_whole("reduce_scatter_tensor", "input", extent(input), "output",
                            extent(output), getSize()));
  return issue({TT_COLLECTIVE_REDUCE_SCATTER, options.reduceOp}, OpType::_REDUCE_SCATTER_BASE,
               {input}, {output});
}

ProcessGroupTpu::Work
ProcessGroupTpu::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  return in_turn(inputs.size(),
                 [&](size_t i) { return _reduce_scatter_base(outputs.at(i), inputs[i], options); });
}

ProcessGroupTpu::Work ProcessGroupTpu::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                     std::vector<int64_t>& output_splits,
                                                     std::vector<int64_t>& input_splits,
                                                     const c10d::AllToAllOptions&) {
  Asked asked{TT_COLLECTIVE_ALL_TO_ALL};
  if (!input_splits.empty() || !output_splits.empty()) {
    add_splits(asked.splits, input, input_splits, getSize());
    add_splits(asked.splits, output, output_splits, getSize());
  } else {
    TORCH_CHECK(input.numel() == output.numel() && input.numel() % getSize() == 0,
                "all_to_all_single without split sizes takes tensors of equal sizes that ",
                getSize(), " ranks can share");
  }
  return issue(asked, OpType::ALLTOALL_BASE, {input}, {output});
}

ProcessGroupTpu::Work ProcessGroupTpu::alltoall(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllToAllOptions&) {
  Asked asked{TT_COLLECTIVE_ALL_TO_ALL};
  auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK(inputs.size() == ranks && outputs.size() == ranks,
              "all_to_all takes lists of a tensor for each of the ", ranks, " ranks");
  for (const at::Tensor& one : inputs) asked.splits.push_back(one.numel());
  for (const at::Tensor& one : outputs) asked.splits.push_back(one.numel());
  return issue(asked, OpType::ALLTOALL, inputs, outputs);
}

ProcessGroupTpu::Work ProcessGroupTpu::send(Tensors& tensors, int peer, int tag) {
  if (!carrier_->on_devices())
    return issue({TT_COLLECTIVE_SEND, {}, peer, tag}, OpType::SEND, tensors, {}, kSends);
  if (carrier_->notices) tt_notices_sent(carrier_->notices, getRank(), peer);
  if (peer == getRank()) {
    Tensors copies;
    for (const at::Tensor& one : tensors) copies.push_back(one.detach().clone());
    std::lock_guard<std::mutex> guard(carrier_->lock);
    carrier_->letters[tag].push_back(std::move(copies));
    return all_so_far(OpType::SEND, {});
  }
  // Each waits for its receiver.
  return issue({TT_COLLECTIVE_SEND, {}, peer, tag}, OpType::SEND, tensors, {}, kSends - 1 - peer);
}

ProcessGroupTpu::Work ProcessGroupTpu::recv(Tensors& tensors, int peer, int tag) {
  if (carrier_->notices) tt_notices_asked(carrier_->notices, peer, getRank());
  if (carrier_->on_devices() && peer == getRank()) return receive_from_itself(tensors, tag);
  return receive({TT_COLLECTIVE_RECV, {}, peer, tag}, OpType::RECV, tensors);
}

// What the host does is done when it is asked for: messages that cross are waited for later.
ProcessGroupTpu::Work ProcessGroupTpu::receive(const Asked& asked, OpType type,
                                               const Tensors& tensors) {
  int peer = static_cast<int>(asked.root);
  if (!carrier_->on_host()) return issue(asked, type, {}, tensors, peer);
  auto self = Ptr<ProcessGroupTpu>::unsafe_reclaim_from_nonowning(this);
  return later(type, tensors, [=](Milliseconds most, int* source) -> Work {
    if (!most.count()) return nullptr;
    Work received = self->issue(asked, type, {}, tensors, peer);
    *source = peer < 0 ? received->sourceRank() : peer;
    return received;
  });
}

ProcessGroupTpu::Work ProcessGroupTpu::later(OpType type, const Tensors& outputs, Receive receive) {
  auto work = make_work_later(getRank(), type, carrier_->timeout(), outputs, std::move(receive));
  std::lock_guard<std::mutex> guard(lock_);
  if (coalescing_) later_.push_back(work);
  return work;
}

ProcessGroupTpu::Work ProcessGroupTpu::receive_from_itself(const Tensors& tensors, int tag) {
  auto self = Ptr<ProcessGroupTpu>::unsafe_reclaim_from_nonowning(this);
  auto receive = [self, tensors, tag](Milliseconds most, int* source) -> Work {
    auto& carrier = *self->carrier_;
    *source = self->getRank();
    std::lock_guard<std::mutex> guard(carrier.lock);
    auto& letters = carrier.letters[tag];
    if (letters.empty() && !most.count()) return nullptr;
    TORCH_CHECK_WITH(DistBackendError, !letters.empty(),
                     "recv: this rank has not sent itself a message with tag ", tag,
                     " before it waited for one");
    for (size_t i = 0; i < tensors.size(); i++)
      at::Tensor(tensors[i]).detach().copy_(letters.front().at(i).view_as(tensors[i]));
    letters.pop_front();
    return self->all_so_far(OpType::RECV, tensors);
  };
  return later(OpType::RECV, tensors, receive);
}

ProcessGroupTpu::Work ProcessGroupTpu::receive_from_any(const Tensors& tensors, int tag) {
  auto self = Ptr<ProcessGroupTpu>::unsafe_reclaim_from_nonowning(this);
  auto receive = [self, tensors, tag](Milliseconds most, int* source) -> Work {
    tt_notices* notices = self->carrier_->notices;
    int rank = self->getRank();
    if (!most.count() && !tt_notices_find(notices, rank, source)) return nullptr;
    if (most.count())
      if (auto alone = tt_notices_await(notices, rank, most.count(), source)) raise(alone);
    if (*source == rank) {
      auto letter = self->receive_from_itself(tensors, tag);
      return letter->isCompleted() ? letter : nullptr;
    }
    return self->issue({TT_COLLECTIVE_RECV, {}, *source, tag}, OpType::RECVANYSOURCE, {}, tensors,
                       *source);
  };
  return later(OpType::RECVANYSOURCE, tensors, receive);
}

ProcessGroupTpu::Work ProcessGroupTpu::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK_NOT_IMPLEMENTED(!carrier_->world || !carrier_->on_devices(),
                              "recv from any rank: the plugin carries messages between processes, "
                              "and has to know from which rank; name it");
  if (carrier_->on_devices()) return receive_from_any(tensors, tag);
  return receive({TT_COLLECTIVE_RECV, {}, -1, tag}, OpType::RECVANYSOURCE, tensors);
}

ProcessGroupTpu::Work ProcessGroupTpu::barrier(const c10d::BarrierOptions&) {
  return issue({TT_COLLECTIVE_BARRIER}, OpType::BARRIER, {}, {});
}

}  // namespace tt
