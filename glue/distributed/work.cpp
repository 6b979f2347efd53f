// What a process group answers a collective with.
#include "distributed/distributed.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <thread>

namespace tt {

using c10d::OpType;

void raise(tt_status status) {
  std::string text = tt_status_message(status);
  tt_status_release(status);
  TORCH_CHECK_WITH(DistBackendError, false, text);
}

void check_group(tt_dist_group* group) {
  if (tt_status error = tt_dist_error(group)) raise(error);
}

namespace {

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

class Later final : public c10d::Work {
 public:
  Later(int rank, OpType type, Milliseconds timeout, std::vector<at::Tensor> outputs,
        Receive receive)
      : Work(rank, type), timeout_(timeout), outputs_(std::move(outputs)),
        receive_(std::move(receive)) {}

  bool isCompleted() override {
    if (!received_) received_ = receive_(Milliseconds(0), &source_);
    return received_ && received_->isCompleted();
  }
  bool isSuccess() const override { return received_ && received_->isSuccess(); }
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(Milliseconds timeout) override {
    if (!received_) received_ = receive_(timeout > kNoTimeout ? timeout : timeout_, &source_);
    return received_->wait(timeout);
  }

 private:
  Milliseconds timeout_;
  std::vector<at::Tensor> outputs_;
  Receive receive_;
  Ptr<c10d::Work> received_;
  int source_ = -1;
};

}  // namespace

Ptr<c10d::Work> make_work_later(int rank, OpType type, Milliseconds timeout,
                                std::vector<at::Tensor> outputs, Receive receive) {
  return c10::make_intrusive<Later>(rank, type, timeout, std::move(outputs), std::move(receive));
}

Ptr<c10d::Work> make_work(int rank, OpType type, std::shared_ptr<Order> order,
                          const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
                          bool captured) {
  return c10::make_intrusive<Issued>(rank, type, std::move(order), inputs, std::move(outputs),
                                     captured);
}

}  // namespace tt
