// The process group: each collective becomes an operator, recorded on the group's own stream.
#include "distributed/distributed.h"

#include "device/policy.h"
#include "dispatch/convert.h"
#include "dispatch/dispatch.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tt {
namespace {

using c10d::OpType;

TORCH_LIBRARY_FRAGMENT(torch_tpu, m) {
  m.def("collective_(Tensor(a!) turn, Tensor[] inputs, Tensor(b!)[] outputs, int kind, int op, "
        "Scalar root, Scalar tag, Scalar site, int[] splits, int[] devices, int ranks, int party) "
        "-> ()");
}

// Streams that users cannot get; groups take them in turn.
c10::StreamId next_stream() {
  constexpr int kFirst = 65;
  static std::atomic<int> taken{0};
  return kFirst + taken++ % (TT_DEVICE_STREAMS - kFirst);
}

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
                          at::Scalar(static_cast<int64_t>(call_site()) + TT_FIRST_SITE),
                          asked.splits,
                          asked.devices,
                          asked.ranks,
                          asked.party};
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
                                 const std::string& name, std::vector<int64_t> global_ranks,
                                 std::vector<int64_t> threads, std::shared_ptr<World> world)
    : Backend(rank, size),
      carrier_(std::make_shared<Carrier>(std::move(store), rank, size, timeout, name,
                                         std::move(global_ranks), std::move(threads),
                                         std::move(world))) {}

ProcessGroupTpu::~ProcessGroupTpu() = default;

// Of processes: has the group launch what it is asked for with the others.
void ProcessGroupTpu::enlist(tt_dist_group* group, int which) {
  const Carrier& carrier = *carrier_;
  int peer = which == kAll ? -1 : which <= kSends ? kSends - 1 - which : which;
  Asked asked = peer < 0          ? among(carrier)
                : which <= kSends ? between(carrier, getRank(), peer)
                                  : between(carrier, peer, getRank());
  auto count = static_cast<int>(asked.devices.size());
  check(tt_dist_enlist(group, asked.party, asked.devices.data(), count, peer));
}

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
  check(tt_dist_create(carrier_->members->name, rank, size, &transport, &made->group));
  if (carrier_->world && carrier_->on_devices()) enlist(made->group, which);
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
  tt_collective c{};
  {
    std::lock_guard<std::mutex> guard(lock_);
    in = order(kAll, device);
    c.sequence = static_cast<int64_t>(in->issued);
  }
  check_group(in->group);
  const Tensors& some = outputs.empty() ? inputs : outputs;
  c.kind = asked.kind;
  c.op = static_cast<tt_reduction>(static_cast<uint8_t>(asked.reduction.op_));
  if (!some.empty()) c.dtype = to_dtype(some[0].scalar_type());
  c.root = asked.root;
  c.x_count = numel_of(inputs);
  c.y_count = numel_of(outputs);
  if (!asked.splits.empty()) {
    c.x_splits = asked.splits.data();
    c.y_splits = c.x_splits + getSize();
  }
  c.site = call_site() + TT_FIRST_SITE;
  tt_status apart = tt_members_compare(carrier_->members, &c);
  if (!apart) return;
  if (tt_status_code(apart) == TT_CANCELLED) return check(apart);
  tt_dist_abort(in->group, tt_status_message(apart));
  raise(apart);
}

// What profilers' traces have of each collective, as of NCCL's.
void ProcessGroupTpu::record(OpType type, const Tensors& inputs, const Tensors& outputs,
                             int which) {
  if (!at::hasCallbacks()) return;
  const Tensors &from = inputs.empty() ? outputs : inputs, &to = outputs.empty() ? inputs : outputs;
  const tt_members& members = *carrier_->members;
  std::string name = c10d::opTypeToString(type);
  for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
  RECORD_PARAM_COMMS_DATA(
      std::make_tuple(static_cast<int64_t>(getSequenceNumberForGroup()), which != kAll),
      std::make_tuple(getGroupUid(), getGroupDesc()), inputs, outputs, getRank(), std::move(name),
      numel_of(from), numel_of(to), to.empty() ? at::kByte : to[0].scalar_type(),
      std::vector<int64_t>(), std::vector<int64_t>(), static_cast<int>(members.ranks[0]),
      static_cast<int>(tt_members_step(&members)), getSize());
}

ProcessGroupTpu::Work ProcessGroupTpu::issue(const Asked& asked, OpType type, const Tensors& inputs,
                                             const Tensors& outputs, int which) {
  check_tensors(inputs);
  check_tensors(outputs);
  const Tensors& some = outputs.empty() ? inputs : outputs;
  auto device = some.empty() ? current_device() : some[0].device().index();
  record(type, inputs, outputs, which);
  if (setting_now(kMode) == TT_MODE_DEBUG && which == kAll && !captured_stream(device))
    compare(asked, inputs, outputs, device);
  Asked scaled = asked;
  Tensors factored = inputs;
  if (asked.reduction.op_ == c10d::ReduceOp::PREMUL_SUM) {
    const auto& by = static_cast<c10d::NCCLPreMulSumSupplement&>(*asked.reduction.supplement_);
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
    if (captured && carrier_->world) carrier_->world->launch_captured();
    Packed packed(*carrier_, captured, scaled, factored, outputs);
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
  return make_work(getRank(), type, in, inputs, outputs, captured);
}

ProcessGroupTpu::Work ProcessGroupTpu::all_so_far(OpType type, const Tensors& outputs) {
  std::lock_guard<std::mutex> guard(lock_);
  auto in = order(kAll, current_device());
  return make_work(getRank(), type, in, outputs, outputs, false);
}

void ProcessGroupTpu::startCoalescing() {
  std::lock_guard<std::mutex> guard(lock_);
  coalescing_ = true;
}

ProcessGroupTpu::Work ProcessGroupTpu::endCoalescing() {
  std::vector<Work> ended;
  {
    std::lock_guard<std::mutex> guard(lock_);
    coalescing_ = false;
    ended.swap(later_);
  }
  for (const Work& one : ended) one->wait();
  return all_so_far(OpType::COALESCED, {});
}

// Names those who do not arrive; on the host, when all that was issued has ended.
void ProcessGroupTpu::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) {
  synchronize(current_device());
  if (carrier_->backend) carrier_->backend->monitoredBarrier(options, wait_all);
  else barrier({})->wait();
}

// -- The group --

Ptr<Backend::Options> ProcessGroupTpu::getBackendOptions() {
  const tt_members& members = *carrier_->members;
  auto options = c10::make_intrusive<GroupOptions>(getBackendName(), carrier_->timeout());
  options->group_name = members.name;
  options->global_ranks_in_group.assign(members.ranks, members.ranks + members.size);
  return options;
}

// Collective over this group, of which `ranks` become another one; nothing for the other ranks.
Ptr<Backend> ProcessGroupTpu::split(const Ptr<Store>& store, const std::vector<int>& ranks,
                                    const Ptr<Options>& options) {
  auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  std::vector<int64_t> global_ranks;
  for (int rank : ranks) {
    TORCH_CHECK(rank >= 0 && rank < getSize(), "split_group: the group has no rank ", rank);
    global_ranks.push_back(carrier_->members->ranks[rank]);
  }
  return c10::make_intrusive<ProcessGroupTpu>(store, static_cast<int>(own - ranks.begin()),
                                              static_cast<int>(ranks.size()), options->timeout,
                                              options->group_name, std::move(global_ranks),
                                              carrier_->threads, carrier_->world);
}

// A group with processes that were not in this one, which meet at the store. Each of a simulation's
// threads says whose device it has; other processes may be another program's, with ranks alike.
Ptr<Backend> ProcessGroupTpu::merge(const Ptr<Store>& store, const Ptr<Options>& options,
                                    const int& rank, const int& size) {
  std::vector<int64_t> global_ranks;
  if (!carrier_->threads.empty()) {
    std::string own = std::to_string(carrier_->members->ranks[getRank()]);
    store->set("device/" + std::to_string(rank), own);
    for (int one = 0; one < size; one++)
      global_ranks.push_back(std::stoll(store->get_to_str("device/" + std::to_string(one))));
  }
  return c10::make_intrusive<ProcessGroupTpu>(store, rank, size, options->timeout,
                                              options->group_name, std::move(global_ranks),
                                              carrier_->threads, nullptr);
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
  std::string why = std::string("process group ") + carrier_->members->name + ": it was aborted";
  if (!carrier_->threads.empty()) tt_meeting_end(why.c_str());
}

void ProcessGroupTpu::leave(const std::string& why) {
  check(tt_members_leave(carrier_->members, why.c_str()));
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
