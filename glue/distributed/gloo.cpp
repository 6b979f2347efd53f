// The transport: what a program asks for, done in memory that the ranks share, or by PyTorch's own
// backend on the host's memory. Runs on the thread that runs the program; no lock is held, nor the
// GIL.
#include "dispatch/convert.h"
#include "distributed/distributed.h"
#include "python/package.h"

namespace tt {
namespace {

using c10d::ReduceOp;
using Tensors = std::vector<at::Tensor>;

struct Transport : Fixed {
  Transport(std::shared_ptr<Carrier> who, std::string which)
      : carrier(std::move(who)), order(std::move(which)) {}
  ~Transport() { tt_segment_close(segment); }
  std::shared_ptr<Carrier> carrier;
  std::string order;
  bool has_met = false;           // and found out whether there is:
  tt_segment* segment = nullptr;  // what the ranks share
};

at::Tensor over(const void* data, int64_t count, tt_dtype dtype) {
  auto options = at::TensorOptions().dtype(from_dtype(dtype)).device(at::kCPU);
  if (!count) return at::empty({0}, options);
  return at::from_blob(const_cast<void*>(data), {count}, options);
}

// One collective, as the backend is asked for it.
struct Doing {
  Backend& by;
  Carrier& carrier;
  tt_collective& c;
  at::Tensor x, y;
  Tensors xs{x}, ys{y};

  Doing(Carrier& who, tt_collective& asked)
      : by(*who.backend), carrier(who), c(asked), x(over(asked.x, asked.x_count, asked.dtype)),
        y(over(asked.y, asked.y_count, asked.dtype)) {}
  bool is_root() const { return c.root == c.rank; }
  int root() const { return static_cast<int>(c.root); }
  int tag() const { return static_cast<int>(c.tag); }
  template <class Options> Options options() const {
    Options made;
    made.timeout = carrier.timeout();
    if constexpr (requires { made.rootRank; }) made.rootRank = c.root;
    if constexpr (requires { made.reduceOp; }) made.reduceOp = reduction();
    return made;
  }
  // A part for each rank, where this one is the root.
  std::vector<Tensors> parts_of_root(const at::Tensor& whole) const {
    if (!is_root()) return {};
    if (!whole.numel()) return {Tensors(static_cast<size_t>(c.size), whole)};
    return {whole.chunk(c.size)};
  }
  std::vector<int64_t> splits(const int64_t* of) const {
    return of ? std::vector<int64_t>(of, of + c.size) : std::vector<int64_t>();
  }

 private:
  ReduceOp reduction() const {
    static constexpr ReduceOp::RedOpType kinds[] = {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::PRODUCT,
                                                    ReduceOp::MIN, ReduceOp::MAX, ReduceOp::BAND,
                                                    ReduceOp::BOR, ReduceOp::BXOR};
    return kinds[c.op];
  }
};

using Work = Ptr<c10d::Work>;

Work reduce(Doing& a) {
  if (!a.is_root()) a.ys[0] = a.y.clone();  // Gloo writes to that of the others, too
  return a.by.reduce(a.ys, a.options<c10d::ReduceOptions>());
}

Work gather(Doing& a) {
  auto outputs = a.parts_of_root(a.y);
  return a.by.gather(outputs, a.xs, a.options<c10d::GatherOptions>());
}

Work scatter(Doing& a) {
  auto inputs = a.parts_of_root(a.x);
  return a.by.scatter(a.ys, inputs, a.options<c10d::ScatterOptions>());
}

Work exchange(Doing& a) {
  auto gets = a.splits(a.c.y_splits), gives = a.splits(a.c.x_splits);
  return a.by.alltoall_base(a.y, a.x, gets, gives, a.options<c10d::AllToAllOptions>());
}

// Does not wait for the receiver: what is sent is kept until it has arrived.
Work send(Doing& a) {
  if (a.is_root()) {  // Gloo has no messages to oneself
    check(tt_mail_post(&a.carrier.to_itself, a.c.tag, a.c.x, a.c.x_count));
    return {};
  }
  std::lock_guard<std::mutex> guard(a.carrier.lock);
  auto& sent = a.carrier.sent;
  auto arrived = [](auto& one) { return one.first->isCompleted(); };
  sent.erase(std::remove_if(sent.begin(), sent.end(), arrived), sent.end());
  Tensors tensors{a.x.clone()};
  auto work = a.by.send(tensors, a.root(), a.tag());
  sent.emplace_back(std::move(work), tensors[0]);
  return {};
}

Work receive(Doing& a) {
  if (a.is_root()) {
    auto timeout = tt_members_timeout(a.carrier.members);
    check(tt_mail_take(&a.carrier.to_itself, a.c.tag, a.c.y, a.c.y_count, timeout));
    a.c.source = a.c.rank;
    return {};
  }
  auto work = a.c.root < 0 ? a.by.recvAnysource(a.ys, a.tag()) : a.by.recv(a.ys, a.root(), a.tag());
  work->wait(a.carrier.timeout());
  a.c.source = work->sourceRank();
  return {};
}

// What is begun, and has to be waited for; or none.
using Begin = Work (*)(Doing& a);
constexpr std::pair<tt_collective_kind, Begin> kKinds[] = {
    {TT_COLLECTIVE_ALL_REDUCE,
     [](Doing& a) { return a.by.allreduce(a.ys, a.options<c10d::AllreduceOptions>()); }},
    {TT_COLLECTIVE_BROADCAST,
     [](Doing& a) { return a.by.broadcast(a.ys, a.options<c10d::BroadcastOptions>()); }},
    {TT_COLLECTIVE_REDUCE, reduce},
    {TT_COLLECTIVE_ALL_GATHER,
     [](Doing& a) { return a.by._allgather_base(a.y, a.x, a.options<c10d::AllgatherOptions>()); }},
    {TT_COLLECTIVE_REDUCE_SCATTER,
     [](Doing& a) {
       return a.by._reduce_scatter_base(a.y, a.x, a.options<c10d::ReduceScatterOptions>());
     }},
    {TT_COLLECTIVE_ALL_TO_ALL, exchange},
    {TT_COLLECTIVE_GATHER, gather},
    {TT_COLLECTIVE_SCATTER, scatter},
    {TT_COLLECTIVE_SEND, send},
    {TT_COLLECTIVE_RECV, receive},
    {TT_COLLECTIVE_BARRIER,
     [](Doing& a) { return a.by.barrier(a.options<c10d::BarrierOptions>()); }},
};

// The failed collective is in it as one that was started.
void dump_record() {
  try {
    InPython in_python;
    function_of("tpu.distributed", "_dump_where_asked")(tt_env(TT_ENV_FLIGHT_RECORD));
  } catch (const std::exception& error) {
    tt_log(TT_LOG_PLUGIN, "the flight record was not written: %s", error.what());
  }
}

tt_status run_by_gloo(Carrier& carrier, tt_collective* asked) {
  return attempt(TT_UNAVAILABLE, [&] {
    Doing doing(carrier, *asked);
    for (auto& [kind, begin] : kKinds)
      if (kind == asked->kind)
        if (Work work = begin(doing)) work->wait();
  });
}

tt_status introduce(void* user, const void* own, int64_t bytes, void* all) {
  auto& carrier = *static_cast<Carrier*>(user);
  tt_collective c{};
  c.kind = TT_COLLECTIVE_ALL_GATHER;
  c.dtype = TT_U8;
  c.rank = carrier.members->rank;
  c.size = carrier.members->size;
  c.x = own;
  c.y = all;
  c.x_count = bytes;
  c.y_count = c.size * bytes;
  return run_by_gloo(carrier, &c);
}

tt_status carry(Transport& self, tt_collective* asked) {
  Carrier& carrier = *self.carrier;
  if (!tt_shared_does(asked->kind)) return run_by_gloo(carrier, asked);
  if (!self.has_met)
    TT_TRY(tt_segment_open(asked->rank, asked->size, &introduce, &carrier, &self.segment));
  self.has_met = true;
  if (!self.segment) return run_by_gloo(carrier, asked);
  return tt_shared_run(self.segment, asked, tt_members_timeout(carrier.members));
}

tt_status explain(void* user, const tt_collective* asked, const char* what) {
  auto& self = *static_cast<Transport*>(user);
  tt_status status = tt_members_explain(self.carrier->members, self.order.c_str(), asked, what);
  if (*tt_env(TT_ENV_FLIGHT_RECORD)) dump_record();
  return status;
}

tt_status run(void* user, tt_collective* asked) {
  tt_status failed = carry(*static_cast<Transport*>(user), asked);
  if (!failed) return TT_SUCCESS;
  tt_status status = explain(user, asked, tt_status_message(failed));
  tt_status_release(failed);
  return status;
}

void release(void* user) { delete static_cast<Transport*>(user); }

}  // namespace

void Carrier::await_sent() {
  std::lock_guard<std::mutex> guard(lock);
  for (auto& [work, bytes] : sent) work->wait();
  sent.clear();
}

tt_transport make_transport(std::shared_ptr<Carrier> carrier, const std::string& order) {
  return {new Transport(std::move(carrier), order), &run, &explain, &release};
}

}  // namespace tt
