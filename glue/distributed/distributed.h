// torch.distributed: process groups whose collectives are operators of the stream.
#pragma once

#include "device/session.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

extern "C" {
#include "dist/failure.h"
#include "dist/flight.h"
#include "dist/mail.h"
#include "dist/notices.h"
#include "dist/shared.h"
#include "dist/together.h"
#include "stream/meeting.h"
}

namespace tt {

using c10d::Backend;
using c10d::Store;
using Milliseconds = std::chrono::milliseconds;
template <class T> using Ptr = c10::intrusive_ptr<T>;

// Makes a backend for tensors of the host, for a new group: its store, rank, size, time-out and
// name. Returns the part of the store that is the group's own, too.
using MakeCarrier = std::function<std::pair<Ptr<Store>, Ptr<Backend>>(Ptr<Store>, int, int,
                                                                      Milliseconds, std::string)>;
// Python's; set once.
MakeCarrier& carrier_maker();

// As PyTorch's; Python copies them when it splits a group.
struct GroupOptions final : Backend::Options {
  using Options::Options;
};

struct Carrier;

// The processes of the default group, each with a device of its own, where the plugin may span
// them.
class World : Fixed {
 public:
  World(Ptr<Store> store, int rank, int size, Milliseconds timeout);
  ~World();
  // The plugin's numbers of the devices, by rank; none where it does not span the processes. Opens
  // it; the first call waits for the others.
  const std::vector<int64_t>& devices();
  void tell(tt_session* open);  // the others, once the plugin is open
  // Has captured programs with collectives be launched by all of them; all call it.
  void launch_captured();
  int64_t number = -1;  // of the default group, as of a carrier; -1: it is being made

 private:
  int64_t ask(int rank);  // its device
  Ptr<Store> store_;
  int rank_, size_;
  Milliseconds timeout_;
  std::atomic<bool> told_{false};
  std::vector<int64_t> devices_;
  std::once_flag found_, enlisted_;
  std::shared_ptr<Carrier> carrier_;  // of what is captured
  tt_dist_group* captured_ = nullptr;
};

// Of the default group that is there; null: its processes have a plugin each. `visible` is the one
// of the host's devices that is this process's; -1: all that it sees.
std::shared_ptr<World> the_world();
void enter_world(Ptr<Store> store, int rank, int size, Milliseconds timeout, int visible);
void leave_world();

// Who carries a group's collectives: PyTorch's own backend for tensors of the host, Gloo; or the
// plugin's own, between devices: of ranks that are threads, or that are processes, which agree on
// their launches by that backend.
struct Carrier : Fixed {
  // `threads`: the plugin's numbers of the devices of ranks that are threads, by their global
  // ranks.
  Carrier(Ptr<Store> store, int rank, int size, Milliseconds timeout, const std::string& name,
          std::vector<int64_t> global_ranks, std::vector<int64_t> threads,
          std::shared_ptr<World> world);
  ~Carrier();
  Ptr<Backend> backend;          // null: the ranks are threads
  std::shared_ptr<World> world;  // null: the plugin's collectives are not for other processes
  std::vector<int64_t> threads;
  tt_members* members = nullptr;
  tt_mail to_itself;
  tt_notices* notices = nullptr;  // of ranks that are threads
  // What this rank has sent itself between devices, by tag; guarded by `lock`.
  std::map<int64_t, std::deque<std::vector<at::Tensor>>> letters;
  std::mutex lock;
  // Messages that were sent and perhaps not received yet, with their bytes.
  std::vector<std::pair<Ptr<c10d::Work>, at::Tensor>> sent;
  // Returns when their receivers have them: those of a group that ends would be lost.
  void await_sent();
  uint64_t unequal = 0;  // exchanges of unequal parts between devices
  // Of all ranks of the world; none: the plugin does not carry the collectives.
  const std::vector<int64_t>& devices() const { return world ? world->devices() : threads; }
  bool on_devices() const { return !devices().empty(); }
  // Its collectives are operators of the host.
  bool on_host() const { return !on_devices() && !open_session()->target.collectives; }
  Milliseconds timeout() const { return Milliseconds(tt_members_timeout(members)); }
  int64_t party(tt_party_kind kind) const { return members->number * TT_PARTY_KINDS + kind; }
};

tt_board board_of(Ptr<Store> store);

// What the core calls for one order of collectives of the group, of which `order` is the name.
tt_transport make_transport(std::shared_ptr<Carrier> carrier, const std::string& order);

// Collectives in one order: all that work on the whole group; what is sent; what is received from
// one rank. Each has a stream of its own, so that none waits for another, nor work on tensors for
// what other ranks do.
struct Order : Fixed {
  ~Order();
  tt_dist_group* group = nullptr;
  at::Tensor turn;
  c10::StreamId stream = 0;
  uint64_t issued = 0;
  tt_marker* last = nullptr;  // behind what was issued
};

// Throws DistBackendError; takes the status.
[[noreturn]] void raise(tt_status status);
// Does so where something ended the group.
void check_group(tt_dist_group* group);
// Stands for the last collective that was issued in this order.
Ptr<c10d::Work> make_work(int rank, c10d::OpType type, std::shared_ptr<Order> order,
                          const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
                          bool captured);

// A message that is received when it is waited for. `receive` waits for it so long, begins to
// receive it, and tells from which rank; null where it is asked not to wait, and it is not there.
using Receive = std::function<Ptr<c10d::Work>(Milliseconds most, int* source)>;
Ptr<c10d::Work> make_work_later(int rank, c10d::OpType type, Milliseconds timeout,
                                std::vector<at::Tensor> outputs, Receive receive);

// One behind the other, in memory of its own, so that no program's text tells what the tensors are
// views of; undefined where there are none. And back.
at::Tensor flat(at::TensorList tensors);
void unflatten(const at::Tensor& all, at::TensorList tensors);
int64_t numel_of(const std::vector<at::Tensor>& tensors);  // of all together

struct Asked {
  tt_collective_kind kind;
  c10d::ReduceOp reduction{};
  int64_t root = 0, tag = 0;
  std::vector<int64_t> splits{};
  std::vector<int64_t> devices{};  // in groups of so many ranks, where the plugin does it
  int64_t ranks = 0, party = 0;
};

// All ranks of a group: their devices and party.
Asked among(const Carrier& carrier);
// Between two ranks of a group: which devices, of which party. From the first to the second.
Asked between(const Carrier& carrier, int64_t from, int64_t to);

// Which of the group's orders of collectives; others are the rank that is received from.
enum { kAll = -2, kSends = -3 };

// What is asked, as the plugin's devices do it at once. Their programs must be one text, so each
// rank gives and gets one tensor of one dim and of one size, whatever tensors it has.
class Packed : Fixed {
 public:
  // Names the devices in `asked`: all of the world's where the program `spans` more collectives
  // than this one. Waits for the other ranks where their parts may have unequal sizes; in a program
  // that spans more, not where this rank's are equal, and the others' are taken to be so.
  Packed(Carrier& carrier, bool spans, Asked& asked, const std::vector<at::Tensor>& inputs,
         const std::vector<at::Tensor>& outputs);
  std::vector<at::Tensor> inputs, outputs;
  void unpack() const;  // to this rank's own outputs

 private:
  void pad(Carrier& carrier, Asked& asked);
  std::vector<at::Tensor> own_;
  std::vector<int64_t> parts_;  // of outputs' rows, where these are of unequal sizes
};

class ProcessGroupTpu final : public Backend {
 public:
  ProcessGroupTpu(Ptr<Store> store, int rank, int size, Milliseconds timeout,
                  const std::string& name, std::vector<int64_t> global_ranks,
                  std::vector<int64_t> threads, std::shared_ptr<World> world);
  ~ProcessGroupTpu() override;

  using Work = Ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  const std::string getBackendName() const override { return "tpu"; }
  Ptr<Options> getBackendOptions() override;
  bool supportsSplitting() const override { return true; }
  Ptr<Backend> split(const Ptr<Store>& store, const std::vector<int>& ranks,
                     const Ptr<Options>& options) override;
  Ptr<Backend> merge(const Ptr<Store>& store, const Ptr<Options>& options, const int& rank,
                     const int& size) override;
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors,
                           const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input,
                       const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(Lists& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, Lists& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                     std::vector<int64_t>& input_splits,
                     const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int peer, int tag) override;
  Work recv(Tensors& tensors, int peer, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) override;

  void setTimeout(Milliseconds timeout) override {
    tt_members_set_timeout(carrier_->members, timeout.count());
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;
  void abort() override;
  // Tells the other ranks what ends this process: an error, in words.
  void leave(const std::string& why);
  void shutdown() override;

 private:
  std::shared_ptr<Order> order(int which, c10::DeviceIndex device);
  void enlist(tt_dist_group* group, int which);
  void compare(const Asked& asked, const Tensors& inputs, const Tensors& outputs,
               c10::DeviceIndex device);
  void record(c10d::OpType type, const Tensors& inputs, const Tensors& outputs, int which);
  Work issue(const Asked& asked, c10d::OpType type, const Tensors& inputs, const Tensors& outputs,
             int which = kAll);
  Work later(c10d::OpType type, const Tensors& outputs, Receive receive);
  Work receive(const Asked& asked, c10d::OpType type, const Tensors& tensors);
  Work receive_from_any(const Tensors& tensors, int tag);
  Work receive_from_itself(const Tensors& tensors, int tag);
  // Of tensors of another size on each rank, as NCCL's.
  Work gather_uneven(Tensors& outputs, const at::Tensor& input);
  Work scatter_uneven(Tensors& outputs, const Tensors& inputs, const c10d::ReduceOp& reduction);
  // Stands for all collectives of the whole group that were issued.
  Work all_so_far(c10d::OpType type, const Tensors& outputs);

  std::shared_ptr<Carrier> carrier_;
  std::mutex lock_;
  std::map<int, std::shared_ptr<Order>> orders_;
  bool coalescing_ = false;
  std::vector<Work> later_;  // of those that are coalesced, what has to be waited for
};

}  // namespace tt
