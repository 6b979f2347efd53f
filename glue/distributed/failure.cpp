#include "distributed/failure.h"

#include "distributed/parting.h"
#include "python/package.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <exception>
#include <future>
#include <thread>

namespace tt {
namespace {

std::string ended_key(const std::string& order, int rank) {
  return "ended/" + order + "/" + std::to_string(rank);
}

// A rank that fails ends its group, and says in the store what its last collectives were.
std::vector<Told> told_by_all(Carrier& carrier, const std::string& order, const tt_collective& c) {
  constexpr int kTries = 40;
  constexpr Milliseconds kPause(50);
  auto store = carrier.store->clone();
  store->set(ended_key(order, c.rank), packed(recorded(carrier)));
  std::vector<Told> ranks(static_cast<size_t>(c.size));
  for (int i = 0, known = 0; i < kTries && known < c.size; i++) {
    if (i) std::this_thread::sleep_for(kPause);
    known = 0;
    for (int rank = 0; rank < c.size; rank++) {
      Told& one = ranks[static_cast<size_t>(rank)];
      one.rank = carrier.global_ranks[static_cast<size_t>(rank)];
      std::string key = ended_key(order, rank);
      if (one.all.empty() && store->check({key})) one.all = unpacked(store->get_to_str(key));
      known += !one.all.empty();
    }
  }
  return ranks;
}

// What a process that an exception ended has said of it, in words; "" for all others.
std::string parting_words(Carrier& carrier, int rank) {
  std::string key = left_key(rank);
  if (!carrier.store->check({key})) return "";
  return " (it ended with " + carrier.store->get_to_str(key) + ")";
}

// Of a message.
std::string other_end(Carrier& carrier, const tt_collective& c) {
  if (c.root < 0) return "; it was to come from any rank";
  return "; the other end of the message is rank " +
         std::to_string(carrier.global_ranks.at(static_cast<size_t>(c.root))) +
         parting_words(carrier, static_cast<int>(c.root));
}

// Who was not here, and where the ranks that say what they did have parted.
std::string absentees(Carrier& carrier, const std::string& order, const tt_collective& c) {
  if (tt_collective_is_message(c.kind)) return other_end(carrier, c);
  auto ranks = told_by_all(carrier, order, c);
  std::string missing;
  int count = 0;
  for (size_t i = 0; i < ranks.size(); i++) {
    const Told& one = ranks[i];
    if (!one.all.empty() && one.all.back().sequence >= c.sequence) continue;
    missing += (count++ ? ", " : "") + std::to_string(one.rank);
    missing += one.all.empty()
                   ? parting_words(carrier, static_cast<int>(i))
                   : " (it failed at collective " + std::to_string(one.all.back().sequence) + ")";
  }
  auto silent = [](const Told& one) { return one.all.empty(); };
  ranks.erase(std::remove_if(ranks.begin(), ranks.end(), silent), ranks.end());
  std::string where = parting(ranks);
  if (!where.empty()) where = "; the ranks part at " + where;
  if (!count) return "; all ranks had arrived" + where;
  return (count > 1 ? "; these ranks did not arrive: " : "; this rank did not arrive: ") + missing +
         where;
}

// The failed collective is in it as one that was started.
void dump_record() {
  try {
    InPython in_python;
    function_of("tpu.distributed", "_dump_where_asked")(tt_env(TT_ENV_FLIGHT_RECORD));
  } catch (const std::exception& error) {
    tt_log(TT_LOG_PLUGIN, "the flight record was not written: %s", error.what());
  }
}

// A store whose process is stopped, or out of reach, may never answer, and who asks it cannot be
// interrupted: a thread that asks is left behind then.
std::string answered(const std::shared_ptr<Carrier>& carrier, const std::string& order,
                     const tt_collective& c) {
  constexpr std::chrono::seconds kPatience(8);
  auto promise = std::make_shared<std::promise<std::string>>();
  auto answer = promise->get_future();
  std::thread([promise, carrier, order, c] {
    try {
      promise->set_value(absentees(*carrier, order, c));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  try {
    if (answer.wait_for(kPatience) == std::future_status::ready) return answer.get();
  } catch (const std::exception& error) {
    tt_log(TT_LOG_PLUGIN, "the store failed: %s", error.what());
  }
  return "; who is missing is not known, since the store does not answer: its process, or the way "
         "to it, may be what failed";
}

// -- Gloo's own end: it throws on its own thread where a message is larger than what is expected --

std::mutex lock;
std::vector<std::weak_ptr<Carrier>> carriers;  // guarded by it, as the next
std::terminate_handler before = nullptr;

// The others cannot ask a process that is gone.
void tell_and_end() {
  constexpr std::chrono::seconds kPatience(2);
  std::promise<void> told;
  auto done = told.get_future();
  std::thread([&told] {
    try {
      std::lock_guard<std::mutex> guard(lock);
      for (auto& one : carriers)
        if (auto carrier = one.lock())
          carrier->store->clone()->set(ended_key("all", carrier->backend->getRank()),
                                       packed(recorded(*carrier)));
    } catch (...) {
      tt_log(TT_LOG_PLUGIN, "the other ranks were not told that this process ends");
    }
    told.set_value();
  }).detach();
  done.wait_for(kPatience);
  if (before) before();
  std::abort();
}

}  // namespace

void tell_where_it_ends(const std::shared_ptr<Carrier>& carrier) {
  std::lock_guard<std::mutex> guard(lock);
  if (carriers.empty() && !before) before = std::set_terminate(tell_and_end);
  auto gone = [](const std::weak_ptr<Carrier>& one) { return one.expired(); };
  carriers.erase(std::remove_if(carriers.begin(), carriers.end(), gone), carriers.end());
  carriers.push_back(carrier);
}

tt_status explain_failure(const std::shared_ptr<Carrier>& carrier, const std::string& order,
                          const tt_collective& c, const std::string& what) {
  std::string who = answered(carrier, order, c);
  if (*tt_env(TT_ENV_FLIGHT_RECORD)) dump_record();
  double seconds = static_cast<double>(carrier->timeout_ms.load()) / 1000;
  return tt_error(TT_UNAVAILABLE, "%s%s (the time-out is %g s)", what.c_str(), who.c_str(),
                  seconds);
}

}  // namespace tt
