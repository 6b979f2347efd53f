// The process group: each collective becomes an operator, recorded on the group's own stream.
#include "distributed/distributed.h"

#include "device/policy.h"
#include "dispatch/convert.h"
#include "dispatch/dispatch.h"
#include "distributed/failure.h"
#include "distributed/parting.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <thread>

namespace tt {
namespace {

using c10d::OpType;

TORCH_LIBRARY_FRAGMENT(torch_tpu, m) {
  m.def("collective_(Tensor(a!) turn, Tensor[] inputs, Tensor(b!)[] outputs, int kind, int op, "
        "Scalar root, Scalar tag, Scalar site, int[] splits, int[] devices, int ranks) -> ()");
}

// Streams that users cannot get; groups take them in turn.
c10::StreamId next_stream() {
  constexpr int kFirst = 65;
  static std::atomic<int> taken{0};
  return kFirst + taken++ % (TT_DEVICE_STREAMS - kFirst);
}

// By which the profiler knows a collective; as PyTorch's own backends name theirs.
const char* title_of(OpType type) {
  static const std::map<OpType, const char*> titles{
      {OpType::BROADCAST, "tpu:broadcast"},
      {OpType::ALLREDUCE, "tpu:all_reduce"},
      {OpType::ALLREDUCE_COALESCED, "tpu:all_reduce"},
      {OpType::REDUCE, "tpu:reduce"},
      {OpType::ALLGATHER, "tpu:all_gather"},
      {OpType::_ALLGATHER_BASE, "tpu:all_gather_into_tensor"},
      {OpType::GATHER, "tpu:gather"},
      {OpType::SCATTER, "tpu:scatter"},
      {OpType::REDUCE_SCATTER, "tpu:reduce_scatter"},
      {OpType::_REDUCE_SCATTER_BASE, "tpu:reduce_scatter_tensor"},
      {OpType::ALLTOALL_BASE, "tpu:all_to_all"},
      {OpType::ALLTOALL, "tpu:all_to_all"},
      {OpType::SEND, "tpu:send"},
      {OpType::RECV, "tpu:recv"},
      {OpType::RECVANYSOURCE, "tpu:recvAnySource"},
      {OpType::BARRIER, "tpu:barrier"},
  };
  auto found = titles.find(type);
  return found == titles.end() ? nullptr : found->second;
}

void check_group(tt_dist_group* group) {
  tt_status error = tt_dist_error(group);
  if (!error) return;
  std::string text = tt_status_message(error);
  tt_status_release(error);
  TORCH_CHECK_WITH(DistBackendError, false, text);
}

// A collective that was issued. What depends on its results waits for these by itself, so that
// wait() only tells of errors, but for a barrier, or where a time-out is given.
class Issued final : public c10d::Work {
 public:
  Issued(int rank, OpType type, std::shared_ptr<Order> order, const std::vector<at::Tensor>& inputs,
         std::vector<at::Tensor> outputs, bool captured)
      : Work(rank, type, title_of(type), inputs.empty() ? outputs : inputs),
        order_(std::move(order)), outputs_(std::move(outputs)), sequence_(order_->issued),
        marker_(captured ? nullptr : tt_marker_retain(order_->last)) {
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();  // the profiler's: it is issued
  }
  ~Issued() override { tt_marker_release(marker_); }

  // Also when it was waited for: then the results can be used without more ado.
  bool isCompleted() override { return waited_ || !marker_ || tt_marker_passed(marker_); }
  bool isSuccess() const override {
    return (!marker_ || tt_marker_passed(marker_)) && !tt_dist_failed(order_->group);
  }
  std::exception_ptr exception() const override {
    try {
      check_error();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }
  int sourceRank() const override {
    if (marker_) check(tt_marker_await(marker_));
    check_error();
    return tt_dist_source(order_->group);
  }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { check_error(); }
  bool wait(Milliseconds timeout) override {
    if (marker_ && timeout > kNoTimeout) await_for(timeout);
    else if (marker_ && opType_ == OpType::BARRIER) check(tt_marker_await(marker_));
    check_error();
    waited_ = true;
    return true;
  }
  void blockCurrentStream() override { check_error(); }
  void abort() override { tt_dist_abort(order_->group, "a collective was aborted"); }
  // Has no devices: what uses the tensors is ordered by them.
  Ptr<c10::ivalue::Future> getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void check_error() const { check_group(order_->group); }
  void await_for(Milliseconds timeout) {
    auto until = std::chrono::steady_clock::now() + timeout;
    while (!tt_marker_passed(marker_)) {
      TORCH_CHECK_WITH(DistBackendError, std::chrono::steady_clock::now() < until, "collective ",
                       sequence_, " (", c10d::opTypeToString(opType_), ") has not ended within ",
                       timeout.count(), " ms");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::shared_ptr<Order> order_;
  std::vector<at::Tensor> outputs_;
  uint64_t sequence_;
  tt_marker* marker_;
  std::atomic<bool> waited_{false};
};

// Where the collective is recorded, until this ends. A message is not waited for in Debug either:
// two ranks may receive from one another before they send.
class Place : Fixed {
 public:
  Place(c10::DeviceIndex device, c10::StreamId stream, bool message, bool always) {
    Choice choice{};
    bool is_debug = setting_now(kMode) == TT_MODE_DEBUG;
    bool safe = setting_now(kSpmdSafe) && !always && !(is_debug && message);
    if (captured_stream(device) || safe) return;
    apart_ = true;
    if (!is_debug || message) choice[kMode] = TT_MODE_STRICT;
    block_.emplace(choice);
    c10::Device own(c10::DeviceType::PrivateUse1, device);
    guard_.emplace(c10::Stream(c10::Stream::UNSAFE, own, stream));
  }
  ~Place() {
    if (block_) block_->leave();
  }
  bool apart() const { return apart_; }

 private:
  bool apart_ = false;
  std::optional<Block> block_;
  std::optional<c10::StreamGuard> guard_;
};

void check_tensors(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& one : tensors) {
    TORCH_CHECK(one.device().is_privateuseone(),
                "process groups of backend 'tpu' take tensors on tpu, not on ", one.device(),
                "; init_process_group(\"cpu:gloo,tpu:tpu\") takes both");
    TORCH_CHECK(one.layout() == at::kStrided, "process groups take dense tensors, not ",
                one.layout());
  }
}

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

void call(const at::Tensor& turn, const std::vector<at::Tensor>& inputs,
          const std::vector<at::Tensor>& outputs, const Asked& asked) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("torch_tpu::collective_", "");
  at::AutoDispatchBelowADInplaceOrView below;
  torch::jit::Stack stack{turn,
                          inputs,
                          outputs,
                          static_cast<int64_t>(asked.kind),
                          static_cast<int64_t>(static_cast<uint8_t>(asked.reduction.op_)),
                          at::Scalar(asked.root),
                          at::Scalar(asked.tag),
                          at::Scalar(static_cast<int64_t>(call_site()) + kFirstSite),
                          asked.splits,
                          asked.devices,
                          asked.ranks};
  op.callBoxed(&stack);
}

}  // namespace

Order::~Order() {
  tt_marker_release(last);
  tt_dist_destroy(group);
}

MakeCarrier& carrier_maker() {
  static auto* one = new MakeCarrier;  // groups may outlive Python, whose function it is
  return *one;
}

ProcessGroupTpu::ProcessGroupTpu(Ptr<Store> store, int rank, int size, Milliseconds timeout,
                                 std::string name, std::vector<int64_t> global_ranks,
                                 std::vector<int64_t> devices)
    : Backend(rank, size), carrier_(std::make_shared<Carrier>()) {
  carrier_->store = std::move(store);
  if (devices.empty())
    std::tie(carrier_->store, carrier_->backend) =
        carrier_maker()(carrier_->store, rank, size, timeout, name);
  carrier_->name = std::move(name);
  carrier_->devices = std::move(devices);
  carrier_->global_ranks = std::move(global_ranks);
  for (auto i = static_cast<int64_t>(carrier_->global_ranks.size()); i < size; i++)
    carrier_->global_ranks.push_back(i);
  carrier_->timeout_ms = timeout.count();
  if (carrier_->backend) tell_where_it_ends(carrier_);
}

ProcessGroupTpu::~ProcessGroupTpu() = default;

std::shared_ptr<Order> ProcessGroupTpu::order(int which, c10::DeviceIndex device) {
  std::shared_ptr<Order>& found = orders_[which];
  if (found) return found;
  auto made = std::make_shared<Order>();
  std::string name = which == kAll     ? "all"
                     : which <= kSends ? "sends"
                                       : "from" + std::to_string(which);
  tt_transport transport = make_transport(carrier_, name);
  bool pair = carrier_->on_devices() && which != kAll;  // of who sends and who receives
  int rank = !pair ? getRank() : which <= kSends ? 0 : 1, size = pair ? 2 : getSize();
  check(tt_dist_create(carrier_->name.c_str(), rank, size, &transport, &made->group));
  auto words = at::empty({TT_TURN_WORDS}, at::kLong);
  tt_dist_turn(made->group, words.mutable_data_ptr<int64_t>());
  made->turn = words.to(c10::Device(c10::DeviceType::PrivateUse1, device));
  made->stream = next_stream();
  return found = std::move(made);
}

// In Debug, before anything is done; who parts from the others ends the group.
void ProcessGroupTpu::compare(const Asked& asked, const Tensors& inputs, const Tensors& outputs,
                              c10::DeviceIndex device) {
  std::shared_ptr<Order> in;
  Issue issue;
  {
    std::lock_guard<std::mutex> guard(lock_);
    in = order(kAll, device);
    issue.sequence = static_cast<int64_t>(in->issued);
  }
  check_group(in->group);
  int64_t count = 0;
  for (const at::Tensor& one : told_by_inputs(asked.kind) ? inputs : outputs) count += one.numel();
  const Tensors& some = outputs.empty() ? inputs : outputs;
  const char* unit = some.empty() ? "" : tt_dtype_name(to_dtype(some[0].scalar_type()));
  issue.what = words_of(*carrier_, asked.kind, asked.reduction.op_, count, unit, asked.root);
  issue.line = tt_site_text(call_site());
  issue.splits = asked.splits;
  try {
    compare_ranks(*carrier_, getRank(), getSize(), issue);
  } catch (const c10::Error& apart) {
    tt_dist_abort(in->group, apart.what_without_backtrace());
    throw;
  }
}

ProcessGroupTpu::Work ProcessGroupTpu::issue(const Asked& asked, OpType type, const Tensors& inputs,
                                             const Tensors& outputs, int which) {
  check_tensors(inputs);
  check_tensors(outputs);
  const Tensors& some = outputs.empty() ? inputs : outputs;
  auto device = some.empty() ? current_device() : some[0].device().index();
  if (setting_now(kMode) == TT_MODE_DEBUG && which == kAll && !captured_stream(device))
    compare(asked, inputs, outputs, device);
  Asked scaled = asked;
  Tensors factored = inputs;
  if (asked.reduction.op_ == c10d::ReduceOp::PREMUL_SUM) {
    const auto& by = static_cast<c10d::PreMulSumSupplement&>(*asked.reduction.supplement_);
    at::NoGradGuard no_grad;
    auto scale = [&](const at::Tensor& one) {
      return by.tensor_factor.defined() ? one.mul(by.tensor_factor) : one.mul(by.double_factor);
    };
    for (at::Tensor& one : factored) one = scale(one);
    if (tt_collective_in_place(asked.kind))
      for (const at::Tensor& one : outputs) at::Tensor(one).copy_(scale(one));
    scaled.reduction = c10d::ReduceOp::SUM;
  }
  std::lock_guard<std::mutex> guard(lock_);
  auto in = order(which, device);
  Place place(device, in->stream, which != kAll, carrier_->on_devices());
  bool captured = captured_stream(device) != nullptr;
  if (carrier_->on_devices()) {
    Packed packed(*carrier_, getRank(), captured, scaled, factored, outputs);
    call(in->turn, packed.inputs, packed.outputs, scaled);
    packed.unpack();
  } else {
    call(in->turn, factored, outputs, scaled);
  }
  in->issued++;
  if (!captured) {
    tt_marker* marker = nullptr;
    if (place.apart() || type == OpType::BARRIER)  // of an open chunk it would be the end
      check(tt_stream_mark(stream_of(device), Policy(), &marker));
    tt_marker_release(std::exchange(in->last, marker));
  }
  return c10::make_intrusive<Issued>(getRank(), type, in, inputs, outputs, captured);
}

// -- Collectives --

ProcessGroupTpu::Work ProcessGroupTpu::all_so_far(OpType type, const Tensors& outputs) {
  std::lock_guard<std::mutex> guard(lock_);
  auto in = order(kAll, current_device());
  return c10::make_intrusive<Issued>(getRank(), type, in, outputs, outputs, false);
}

ProcessGroupTpu::Work ProcessGroupTpu::endCoalescing() { return all_so_far(OpType::COALESCED, {}); }

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
  check_parts("all_gather", "output", outputs[0], inputs[0], getSize());
  return issue({TT_COLLECTIVE_ALL_GATHER}, OpType::ALLGATHER, inputs, outputs[0]);
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
  check_parts("reduce_scatter", "input", inputs[0], outputs[0], getSize());
  return issue({TT_COLLECTIVE_REDUCE_SCATTER, options.reduceOp}, OpType::REDUCE_SCATTER, inputs[0],
               outputs);
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
  int which = carrier_->on_devices() ? kSends - 1 - peer : kSends;  // waits for its receiver
  return issue({TT_COLLECTIVE_SEND, {}, peer, tag}, OpType::SEND, tensors, {}, which);
}

ProcessGroupTpu::Work ProcessGroupTpu::recv(Tensors& tensors, int peer, int tag) {
  return issue({TT_COLLECTIVE_RECV, {}, peer, tag}, OpType::RECV, {}, tensors, peer);
}

ProcessGroupTpu::Work ProcessGroupTpu::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK_NOT_IMPLEMENTED(!carrier_->on_devices(),
                              "devices cannot receive from any rank; name the one that sends");
  return issue({TT_COLLECTIVE_RECV, {}, -1, tag}, OpType::RECVANYSOURCE, {}, tensors, -1);
}

ProcessGroupTpu::Work ProcessGroupTpu::barrier(const c10d::BarrierOptions&) {
  return issue({TT_COLLECTIVE_BARRIER}, OpType::BARRIER, {}, {});
}

// Names those who do not arrive; on the host, when all that was issued has ended.
void ProcessGroupTpu::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) {
  synchronize(current_device());
  if (carrier_->backend) carrier_->backend->monitoredBarrier(options, wait_all);
  else barrier({})->wait();
}

// -- The group --

Ptr<Backend::Options> ProcessGroupTpu::getBackendOptions() {
  auto options = c10::make_intrusive<GroupOptions>(getBackendName(),
                                                   Milliseconds(carrier_->timeout_ms.load()));
  options->group_name = carrier_->name;
  for (int64_t rank : carrier_->global_ranks)
    options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  return options;
}

// Collective over this group, of which `ranks` become another one; nothing for the other ranks.
Ptr<Backend> ProcessGroupTpu::split(const Ptr<Store>& store, const std::vector<int>& ranks,
                                    const Ptr<Options>& options) {
  auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  std::vector<int64_t> global_ranks;
  for (int rank : ranks)
    global_ranks.push_back(carrier_->global_ranks.at(static_cast<size_t>(rank)));
  return c10::make_intrusive<ProcessGroupTpu>(
      store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
      options->timeout, options->group_name, std::move(global_ranks), carrier_->devices);
}

// A group with processes that were not in this one, which meet at the store.
Ptr<Backend> ProcessGroupTpu::merge(const Ptr<Store>& store, const Ptr<Options>& options,
                                    const int& rank, const int& size) {
  return c10::make_intrusive<ProcessGroupTpu>(store, rank, size, options->timeout,
                                              options->group_name, std::vector<int64_t>(),
                                              carrier_->devices);
}

uint64_t ProcessGroupTpu::getSequenceNumberForGroup() {
  std::lock_guard<std::mutex> guard(lock_);
  auto found = orders_.find(kAll);
  return found == orders_.end() ? 0 : found->second->issued;
}

c10d::ErrorType ProcessGroupTpu::getError() {
  std::lock_guard<std::mutex> guard(lock_);
  for (auto& [which, one] : orders_)
    if (tt_dist_failed(one->group)) return c10d::ErrorType::COMM_ERROR;
  return c10d::ErrorType::SUCCESS;
}

void ProcessGroupTpu::abort() {
  std::lock_guard<std::mutex> guard(lock_);
  for (auto& [which, one] : orders_) tt_dist_abort(one->group, "it was aborted");
  std::string why = "process group " + carrier_->name + ": it was aborted";
  if (carrier_->on_devices()) tt_meeting_end(why.c_str());
}

std::string left_key(int rank) { return "left/" + std::to_string(rank); }

void ProcessGroupTpu::leave(const std::string& why) {
  carrier_->store->set(left_key(getRank()), why);
}

void ProcessGroupTpu::shutdown() {
  std::lock_guard<std::mutex> guard(lock_);
  bool failed = false;
  for (auto& [which, one] : orders_) {
    if (one->last) check(tt_marker_await(one->last));
    failed |= tt_dist_failed(one->group);
  }
  orders_.clear();
  if (!failed) carrier_->await_sent();
}

}  // namespace tt
