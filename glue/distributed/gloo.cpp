// The transport: what a program asks for, done by PyTorch's own backend on the host's memory. Runs
// on the thread that runs the program; no lock is held, nor the GIL.
#include "dispatch/convert.h"
#include "distributed/failure.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tt {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Transport {
  std::shared_ptr<Carrier> carrier;
  std::string order;
};

at::Tensor over(const void* data, int64_t count, tt_dtype dtype) {
  auto options = at::TensorOptions().dtype(from_dtype(dtype)).device(at::kCPU);
  if (!count) return at::empty({0}, options);
  return at::from_blob(const_cast<void*>(data), {count}, options);
}

class Doing {
 public:
  Doing(Carrier& carrier, tt_collective* asked)
      : by_(*carrier.backend), carrier_(carrier), c_(asked) {
    x_ = over(asked->x, asked->x_count, asked->dtype);
    y_ = over(asked->y, asked->y_count, asked->dtype);
  }
  void run();

 private:
  template <class Options> Options options() const {
    Options made;
    made.timeout = Milliseconds(carrier_.timeout_ms.load());
    return made;
  }
  template <class Options> Options rooted() const {
    auto made = options<Options>();
    made.rootRank = c_->root;
    return made;
  }
  template <class Options> Options reducing(Options made) const {
    static constexpr c10d::ReduceOp::RedOpType kinds[] = {
        c10d::ReduceOp::SUM, c10d::ReduceOp::AVG,  c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN,
        c10d::ReduceOp::MAX, c10d::ReduceOp::BAND, c10d::ReduceOp::BOR,     c10d::ReduceOp::BXOR};
    made.reduceOp = kinds[c_->op];
    return made;
  }
  // A part for each rank.
  Tensors parts(const at::Tensor& whole) const {
    auto found = whole.chunk(c_->size);
    if (whole.numel() == 0) found.assign(static_cast<size_t>(c_->size), whole);
    return found;
  }
  static void await(const Ptr<c10d::Work>& work) { work->wait(); }
  void reduce();
  void gather();
  void scatter();
  void exchange();
  void send();
  void receive();
  void receive_own();

  Backend& by_;
  Carrier& carrier_;
  tt_collective* c_;
  at::Tensor x_, y_;
};

void Doing::reduce() {
  bool is_root = c_->root == c_->rank;
  Tensors tensors{is_root ? y_ : y_.clone()};  // Gloo writes to that of the others, too
  await(by_.reduce(tensors, reducing(rooted<c10d::ReduceOptions>())));
}

void Doing::gather() {
  std::vector<Tensors> outputs;
  Tensors inputs{x_};
  if (c_->root == c_->rank) outputs.push_back(parts(y_));
  await(by_.gather(outputs, inputs, rooted<c10d::GatherOptions>()));
}

void Doing::scatter() {
  Tensors outputs{y_};
  std::vector<Tensors> inputs;
  if (c_->root == c_->rank) inputs.push_back(parts(x_));
  await(by_.scatter(outputs, inputs, rooted<c10d::ScatterOptions>()));
}

void Doing::exchange() {
  std::vector<int64_t> x, y;
  if (c_->x_splits) {
    x.assign(c_->x_splits, c_->x_splits + c_->size);
    y.assign(c_->y_splits, c_->y_splits + c_->size);
  }
  await(by_.alltoall_base(y_, x_, y, x, options<c10d::AllToAllOptions>()));
}

// Does not wait for the receiver: what is sent is kept until it has arrived.
void Doing::send() {
  std::lock_guard<std::mutex> guard(carrier_.lock);
  if (c_->root == c_->rank) {
    carrier_.to_itself[c_->tag].push_back(x_.clone());
    carrier_.sent_to_itself.notify_all();
    return;
  }
  auto arrived = [](auto& one) { return one.first->isCompleted(); };
  carrier_.sent.erase(std::remove_if(carrier_.sent.begin(), carrier_.sent.end(), arrived),
                      carrier_.sent.end());
  Tensors tensors{x_.clone()};
  auto work = by_.send(tensors, static_cast<int>(c_->root), static_cast<int>(c_->tag));
  carrier_.sent.emplace_back(std::move(work), tensors[0]);
}

// Gloo has no messages to oneself.
void Doing::receive_own() {
  std::unique_lock<std::mutex> guard(carrier_.lock);
  auto& waiting = carrier_.to_itself[c_->tag];
  Milliseconds timeout(carrier_.timeout_ms.load());
  bool came = carrier_.sent_to_itself.wait_for(guard, timeout, [&] { return !waiting.empty(); });
  TORCH_CHECK(came, "the rank sent nothing to itself");
  TORCH_CHECK(waiting.front().numel() == y_.numel(), "the rank sent ", waiting.front().numel(),
              " bytes to itself");
  y_.copy_(waiting.front());
  waiting.pop_front();
  c_->source = c_->rank;
}

void Doing::receive() {
  if (c_->root == c_->rank) return receive_own();
  Tensors tensors{y_};
  auto tag = static_cast<int>(c_->tag);
  auto work = c_->root < 0 ? by_.recvAnysource(tensors, tag)
                           : by_.recv(tensors, static_cast<int>(c_->root), tag);
  work->wait(Milliseconds(carrier_.timeout_ms.load()));
  c_->source = work->sourceRank();
}

void Doing::run() {
  Tensors in_place{y_}, inputs{x_};
  switch (c_->kind) {
  case TT_COLLECTIVE_ALL_REDUCE:
    return await(by_.allreduce(in_place, reducing(options<c10d::AllreduceOptions>())));
  case TT_COLLECTIVE_BROADCAST:
    return await(by_.broadcast(in_place, rooted<c10d::BroadcastOptions>()));
  case TT_COLLECTIVE_REDUCE:
    return reduce();
  case TT_COLLECTIVE_ALL_GATHER:
    return await(by_._allgather_base(y_, x_, options<c10d::AllgatherOptions>()));
  case TT_COLLECTIVE_REDUCE_SCATTER:
    return await(by_._reduce_scatter_base(y_, x_, reducing(options<c10d::ReduceScatterOptions>())));
  case TT_COLLECTIVE_ALL_TO_ALL:
    return exchange();
  case TT_COLLECTIVE_GATHER:
    return gather();
  case TT_COLLECTIVE_SCATTER:
    return scatter();
  case TT_COLLECTIVE_SEND:
    return send();
  case TT_COLLECTIVE_RECV:
    return receive();
  default:
    return await(by_.barrier(options<c10d::BarrierOptions>()));
  }
}

tt_status run(void* user, tt_collective* asked) {
  auto& self = *static_cast<Transport*>(user);
  try {
    Doing(*self.carrier, asked).run();
    return TT_SUCCESS;
  } catch (const c10::Error& error) {
    return explain_failure(self.carrier, self.order, *asked, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return explain_failure(self.carrier, self.order, *asked, error.what());
  }
}

void release(void* user) { delete static_cast<Transport*>(user); }

}  // namespace

void Carrier::await_sent() {
  std::lock_guard<std::mutex> guard(lock);
  for (auto& [work, bytes] : sent) work->wait();
  sent.clear();
}

tt_transport make_transport(std::shared_ptr<Carrier> carrier, const std::string& order) {
  return {new Transport{std::move(carrier), order}, &run, &release};
}

}  // namespace tt
