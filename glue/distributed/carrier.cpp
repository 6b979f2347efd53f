// Who carries a group's collectives.
#include "distributed/distributed.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <exception>

namespace tt {
namespace {

std::terminate_handler before = nullptr;

// Gloo throws on its own thread where a message is larger than what is expected. The others cannot
// ask a process that is gone.
void tell_and_end() {
  tt_members_farewell();
  if (before) before();
  std::abort();
}

// Threads have one store between them.
std::string name_of_threads(Store* store, const std::string& group) {
  auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store);
  const void* whole = prefixed ? prefixed->getUnderlyingNonPrefixStore().get() : store;
  return group + " of " + std::to_string(reinterpret_cast<uintptr_t>(whole));
}

}  // namespace

Carrier::Carrier(Ptr<Store> store, int rank, int size, Milliseconds timeout,
                 const std::string& name, std::vector<int64_t> global_ranks,
                 std::vector<int64_t> some_threads, std::shared_ptr<World> some_world)
    : world(std::move(some_world)), threads(std::move(some_threads)) {
  static std::once_flag once;
  std::call_once(once, [] { before = std::set_terminate(tell_and_end); });
  if (threads.empty()) {
    std::tie(store, backend) = carrier_maker()(store, rank, size, timeout, name);
  } else {
    check(tt_notices_retain(name_of_threads(store.get(), name).c_str(), size, &notices));
  }
  for (auto i = static_cast<int64_t>(global_ranks.size()); i < size; i++) global_ranks.push_back(i);
  tt_board board = board_of(std::move(store));
  check(tt_members_create(name.c_str(), rank, size, global_ranks.data(), &board, &members));
  tt_members_set_timeout(members, timeout.count());
  tt_mail_init(&to_itself);
  if (!world && threads.empty()) return;
  std::optional<pybind11::gil_scoped_release> others;
  if (PyGILState_Check()) others.emplace();
  check(tt_members_take_number(members));
  if (world && world->number < 0) world->number = members->number;  // it is the first one
}

Carrier::~Carrier() {
  tt_mail_deinit(&to_itself);
  tt_notices_release(notices);
  tt_members_release(members);
}

}  // namespace tt
